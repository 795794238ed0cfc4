// The agents' processes: which machines they hold, whether they live, and how their machines are.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "device/arch/topology.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "server/controller/controller.h"

namespace vpod::controller {
namespace {

// "1.18" of "1.18.0"
std::string MinorVersion(absl::string_view version) {
  const std::vector<absl::string_view> parts = absl::StrSplit(version, '.');
  return parts.size() < 2 ? std::string(version) : absl::StrCat(parts[0], ".", parts[1]);
}

// Marks the parts of a machine that cannot be used while a link is broken.
void AddFailedLink(absl::string_view name, Machine& machine) {
  constexpr uint32_t kAllIpus = (1u << arch::kIpusPerMachine) - 1;
  const auto port = arch::FindPort(name);
  if (!port.ok() || arch::KindOfPort(*port) == arch::LinkKind::kSyncLink) {
    machine.failed_ipus |= kAllIpus;
  } else if (arch::KindOfPort(*port) == arch::LinkKind::kGwLink) {
    machine.gateway_failed = true;
  } else {
    machine.failed_ipus |= 1u << arch::IpuOfPort(*port);
  }
}

void TakeOver(const vipuagent::MachineHealth& health, Machine& machine) {
  std::vector<std::string> troubles;
  for (const uint32_t ipu : health.failed_ipus()) {
    if (ipu >= arch::kIpusPerMachine) continue;
    machine.failed_ipus |= 1u << ipu;
    troubles.push_back(absl::StrCat("IPU ", ipu, " failed"));
  }
  for (const std::string& link : health.failed_links()) {
    // Shown to people, so only about ports that exist, and in few words.
    constexpr size_t kMaxText = 100;
    const std::string port = link.substr(0, link.find(' '));
    if (!arch::FindPort(port).ok() || !base::IsTextLine(link) || link.size() > kMaxText) continue;
    AddFailedLink(port, machine);
    troubles.push_back(absl::StrCat("link ", link));
  }
  std::map<std::string, std::vector<uint32_t>> unclaimed;  // IPUs by who holds them
  for (const vipuagent::Holding& holding : health.unclaimed()) {
    if (holding.pcie_id() >= arch::kIpusPerMachine) continue;
    machine.failed_ipus |= 1u << holding.pcie_id();
    unclaimed[absl::StrCat(base::Printable(holding.holder()), " of partition ",
                           base::Printable(holding.partition_id(), 63))]
        .push_back(holding.pcie_id());
  }
  for (const auto& [holder, ipus] : unclaimed) {
    troubles.push_back(absl::StrCat(ipus.size() == 1 ? "IPU " : "IPUs ", absl::StrJoin(ipus, " "),
                                    ipus.size() == 1 ? " is" : " are", " UNCLAIMED: ", holder,
                                    " holds ", ipus.size() == 1 ? "it" : "them",
                                    " until it ends, or until 'reset agent'"));
  }
  machine.trouble = troubles.empty() ? "" : absl::StrCat(absl::StrJoin(troubles, ", "), ".");
}

absl::Status CheckText(absl::string_view field, absl::string_view text, size_t most) {
  if (!base::IsTextLine(text) || absl::StrContains(text, '"')) {
    return absl::InvalidArgumentError(absl::StrCat("Registration: ", field, " '",
                                                   base::Printable(text),
                                                   "' is not printable text without quotes."));
  }
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Registration: ", field, " has ", text.size(), " bytes, at most ", most, "."));
}

// Bounds the size of a registration, because it is kept.
absl::Status CheckRegistration(const vipuagent::RegisterRequest& request) {
  constexpr size_t kMaxName = 300;
  VPOD_RETURN_IF_ERROR(CheckText("endpoint", request.endpoint(), kMaxName));
  VPOD_RETURN_IF_ERROR(CheckText("boot_id", request.boot_id(), kMaxName));
  VPOD_RETURN_IF_ERROR(CheckText("version", request.version(), kMaxName));
  VPOD_RETURN_IF_ERROR(CheckText("metrics_endpoint", request.metrics_endpoint(), kMaxName));
  if (request.endpoint().empty() || request.boot_id().empty() || request.machines().empty())
    return absl::InvalidArgumentError("Registration: endpoint, boot_id and machines are needed.");
  for (const vipuagent::Machine& machine : request.machines()) {
    VPOD_RETURN_IF_ERROR(CheckText("host", machine.host(), kMaxName));
    VPOD_RETURN_IF_ERROR(CheckAddress(machine.host(), machine.port()));
    VPOD_RETURN_IF_ERROR(CheckText("data_ip", machine.data_ip(), kMaxName));
    VPOD_RETURN_IF_ERROR(CheckText("board_type", machine.board_type(), kMaxName));
    VPOD_RETURN_IF_ERROR(CheckText("clock", machine.clock(), kMaxName));
  }
  if (static_cast<uint64_t>(request.held_size()) >
      uint64_t{arch::kIpusPerMachine} * static_cast<uint64_t>(request.machines_size()))
    return absl::InvalidArgumentError("Registration: more IPUs are held than there are.");
  return absl::OkStatus();
}

// "agent ag0"; "agents of 127.0.0.1:4711" of a process with many.
std::string ObjectOf(const Process& process) {
  if (process.machines.size() != 1) return absl::StrCat("agents of ", process.endpoint);
  const Machine& machine = *process.machines[0];
  return machine.agent != nullptr ? absl::StrCat("agent ", machine.agent->stored.id())
                                  : absl::StrCat("machine ", HostPort(machine.description.host(),
                                                                      machine.description.port()));
}

std::string StatusText(const Process& process, absl::string_view status) {
  return process.machines.size() == 1
             ? std::string(status)
             : absl::StrCat(status, ": ", process.machines.size(), " machines");
}

}  // namespace

bool Controller::IsOfAnother(const vipuagent::RegisterRequest& request) const {
  if (request.controller_store() != store_->id()) return false;
  if (request.controller_epoch() != store_->epoch())
    return request.controller_epoch() > store_->epoch();
  return request.controller_boot_id() != boot_id_;
}

absl::Status Controller::CheckClaims(const vipuagent::RegisterRequest& request) {
  if (MinorVersion(request.version()) != MinorVersion(kVersion)) {
    return absl::FailedPreconditionError(
        absl::StrCat("Agent software has version '", request.version(), "' and the controller ",
                     kVersion, "; install ", MinorVersion(kVersion), " on both."));
  }
  size_t beyond_agents = state_.machines.size();
  for (const vipuagent::Machine& description : request.machines()) {
    const std::string address = HostPort(description.host(), description.port());
    const auto it = state_.machines.find(address);
    if (it == state_.machines.end()) {
      ++beyond_agents;
      continue;
    }
    const Process& holder = *it->second->process;
    if (holder.up && holder.endpoint != request.endpoint()) {
      return absl::AlreadyExistsError(absl::StrCat("Machine ", address,
                                                   " is held by the living process at ",
                                                   holder.endpoint, "; stop one of the two."));
    }
  }
  beyond_agents -= std::min(beyond_agents, state_.agents.size());
  if (beyond_agents <= kMaxUnknownMachines) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("More than ", kMaxUnknownMachines,
                   " unknown machines have registered; add some with 'vipu-admin discover agents "
                   "--add', or stop them."));
}

void Controller::NoteRefusal(const vipuagent::RegisterRequest& request, const std::string& reason) {
  for (const vipuagent::Machine& machine : request.machines()) {
    const std::string address = HostPort(machine.host(), machine.port());
    const auto agent = state_.agent_by_address.find(address);
    const bool is_agent = agent != state_.agent_by_address.end();
    if (!is_agent && refused_.size() >= state_.agents.size() + kMaxUnknownMachines) continue;
    Refused& refused = refused_[address];
    refused.seen = options_.now();
    if (std::exchange(refused.reason, reason) == reason) continue;
    events_.Add(Severity::kError,
                is_agent ? absl::StrCat("agent ", agent->second->stored.id())
                         : absl::StrCat("machine ", address),
                absl::StrCat("refused: ", reason));
  }
}

void Controller::Admit(Process& process, const vipuagent::RegisterRequest& request) {
  process.boot_id = request.boot_id();
  process.metrics_endpoint = request.metrics_endpoint();
  process.confirmed.clear();
  process.sequence = 0;
  process.was_sent_all = false;
  process.one_new_at_a_time = false;
  state_.ForgetHealth(process);
  // It knows nothing yet, and its peers do not know it.
  for (const auto& [id, partition] : process.partitions) state_.Reconfirm(*partition);
  state_.dirty[process.endpoint] = &process;
}

absl::Status Controller::Register(const vipuagent::RegisterRequest& request,
                                  const std::string& heard_on) {
  VPOD_RETURN_IF_ERROR(CheckRegistration(request));
  {
    base::MutexLock lock(mutex_);
    if (absl::Status status = CheckClaims(request); !status.ok()) {
      NoteRefusal(request, std::string(status.message()));
      return status;
    }
    if (IsOfAnother(request)) {
      Fence(absl::StrCat("one of epoch ", request.controller_epoch(),
                         " has configured the agent at ", request.endpoint(),
                         "; this one has epoch ", store_->epoch()));
      return fenced_;
    }
    for (const vipuagent::Machine& machine : request.machines())
      refused_.erase(HostPort(machine.host(), machine.port()));
    const auto known = state_.processes.find(request.endpoint());
    Process& process =
        known != state_.processes.end() ? *known->second : state_.AddProcess(request.endpoint());
    const bool is_new = process.boot_id != request.boot_id();
    const bool was_up = process.up && !is_new;
    std::map<std::string, Partition*> affected;
    if (!was_up) affected = process.partitions;
    if (is_new) Admit(process, request);
    process.heard_on = heard_on;
    state_.SetSeen(process, options_.now());
    affected.merge(state_.SetMachines(process, request.machines()));
    if (!was_up) events_.Add(Severity::kInfo, ObjectOf(process), StatusText(process, "Up"));
    if (!was_up || !affected.empty()) ++names_version_;
    if (is_new) {
      process.unclaimed = UnclaimedOf(request);
      SetHealth(process, process.unclaimed);
    }
    if (removals_.Concern(process, state_)) state_.dirty[process.endpoint] = &process;
    for (const auto& [id, partition] : affected) UpdateState(*partition);
    // Not added because it cannot be written: the process tries again.
    VPOD_RETURN_IF_ERROR(AddDiscovered(process));
  }
  Reconcile();
  return absl::OkStatus();
}

void Controller::ForgetUnknownMachines() {
  for (Process* process : std::set(state_.silent)) {
    const bool is_known =
        std::any_of(process->machines.begin(), process->machines.end(),
                    [](const Machine* machine) { return machine->agent != nullptr; });
    if (is_known || process->in_flight || !process->partitions.empty()) continue;
    gateway_->Forget(process->endpoint);
    state_.RemoveProcess(*process);
  }
  std::erase_if(refused_, [&](const auto& entry) {
    return options_.now() - entry.second.seen > options_.agent_timeout;
  });
}

vipuagent::HeartbeatReply Controller::Heartbeat(const vipuagent::HeartbeatRequest& request) {
  vipuagent::HeartbeatReply reply;
  {
    base::MutexLock lock(mutex_);
    const auto it = state_.processes.find(request.endpoint());
    if (it == state_.processes.end() || it->second->boot_id != request.boot_id()) {
      reply.set_register_(true);
      return reply;
    }
    Process& process = *it->second;
    const bool was_up = process.up;
    state_.SetSeen(process, options_.now());
    AddNames(process, request, reply);
    if (was_up && process.unwell.empty() && request.unwell().empty() && process.releasing.empty() &&
        request.releasing().empty() && request.detached_partitions().empty()) {
      return reply;
    }
    if (!was_up) SetUp(process);
    if (process.sequence == 0 || request.configure_sequence() < process.sequence) {
      vipuagent::HeartbeatRequest health = request;
      health.mutable_unwell()->MergeFrom(process.unclaimed.unwell());
      SetHealth(process, health);
    } else {
      SetHealth(process, request);
    }
    // IPUs reported as releasing before the present configuration do not count.
    if (request.configure_sequence() >= process.sequence) {
      for (const auto& [id, partition] : SetReleasing(process, request.releasing()))
        UpdateState(*partition);
    }
    AutoReset(request);
  }
  Reconcile();
  return reply;
}

void Controller::SetUp(Process& process) {
  for (const Machine* machine : process.machines) {
    if (machine->agent != nullptr) state_.RefreshService(*machine->agent);
  }
  events_.Add(Severity::kInfo, ObjectOf(process), StatusText(process, "Up"));
  for (const auto& [id, partition] : std::map(process.partitions)) UpdateState(*partition);
}

void Controller::SetDown(Process& process) {
  state_.SetSilent(process);
  for (const Machine* machine : process.machines) {
    if (machine->agent != nullptr) state_.RefreshService(*machine->agent);
  }
  if (process.machines.empty()) return;
  events_.Add(Severity::kWarning, ObjectOf(process), StatusText(process, "Down"));
  for (const auto& [id, partition] : std::map(process.partitions)) UpdateState(*partition);
}

void Controller::SetMissing(Clock::time_point awaited_before) {
  std::map<std::string, Partition*> affected;
  while (!state_.awaited.empty() && state_.awaited.begin()->first < awaited_before) {
    Agent& agent = *state_.awaited.begin()->second;
    state_.SetMissing(agent);
    if (agent.cluster == nullptr) continue;
    for (Partition* partition : state_.PartitionsAt(*agent.cluster, agent.position))
      affected[partition->id()] = partition;
  }
  for (const auto& [id, partition] : affected) UpdateState(*partition);
}

vipuagent::HeartbeatRequest Controller::UnclaimedOf(const vipuagent::RegisterRequest& request) {
  std::map<std::string, vipuagent::MachineHealth> by_host;
  const Process& process = *state_.processes.at(request.endpoint());
  // Generations of another store say nothing about this one.
  const bool ours = request.controller_store() == store_->id();
  for (const vipuagent::Holding& holding : request.held()) {
    const auto machine = process.machine_by_host.find(holding.host());
    if (machine == process.machine_by_host.end()) continue;
    const Partition* partition = state_.FindPartition(holding.partition_id());
    // It goes on, or a reset ends it.
    if (ours && partition != nullptr &&
        holding.config_generation() <= partition->stored.config_generation())
      continue;
    const Agent* agent = machine->second->agent;
    if (ours && agent != nullptr &&
        removals_.Cover(agent->stored.id(), holding.partition_id(), holding.config_generation()))
      continue;
    vipuagent::MachineHealth& health = by_host[holding.host()];
    health.set_host(holding.host());
    *health.add_unclaimed() = holding;
  }
  vipuagent::HeartbeatRequest heartbeat;
  for (auto& [host, health] : by_host) *heartbeat.add_unwell() = std::move(health);
  return heartbeat;
}

void Controller::SetHealth(Process& process, const vipuagent::HeartbeatRequest& request) {
  struct Before {
    uint32_t failed_ipus;
    bool gateway_failed;
    std::string trouble;
  };
  std::map<Machine*, Before> touched;
  const auto touch = [&](Machine* machine) {
    touched.try_emplace(machine,
                        Before{machine->failed_ipus, machine->gateway_failed, machine->trouble});
    machine->failed_ipus = 0;
    machine->gateway_failed = false;
    machine->trouble.clear();
  };
  for (Machine* machine : std::exchange(process.unwell, {})) touch(machine);
  for (const vipuagent::MachineHealth& health : request.unwell()) {
    const auto it = process.machine_by_host.find(health.host());
    if (it == process.machine_by_host.end()) continue;
    touch(it->second);
    TakeOver(health, *it->second);
    if (!it->second->trouble.empty()) process.unwell.push_back(it->second);
  }
  std::map<std::string, Partition*> affected;
  for (const auto& [machine, before] : touched) {
    const Agent* agent = machine->agent;
    if (agent == nullptr) continue;
    if (machine->trouble != before.trouble) {
      events_.Add(machine->trouble.empty() ? Severity::kInfo : Severity::kError,
                  absl::StrCat("agent ", agent->stored.id()),
                  machine->trouble.empty() ? "well again" : machine->trouble);
    }
    if (agent->cluster == nullptr) continue;
    state_.RefreshService(*agent);
    for (Partition* partition : state_.PartitionsAt(*agent->cluster, agent->position))
      affected[partition->id()] = partition;
  }
  for (const auto& [id, partition] : affected) UpdateState(*partition, /*health_is_fresh=*/true);
}

std::map<std::string, Partition*> Controller::SetReleasing(
    Process& process, const google::protobuf::RepeatedPtrField<vipuagent::ReleasingIpu>& ipus) {
  constexpr size_t kMaxReason = 512;
  std::set<Machine*> touched;
  for (Machine* machine : std::exchange(process.releasing, {})) {
    machine->releasing.clear();
    touched.insert(machine);
  }
  for (const vipuagent::ReleasingIpu& ipu : ipus) {
    const auto it = process.machine_by_host.find(ipu.host());
    if (it == process.machine_by_host.end() || ipu.pcie_id() >= arch::kIpusPerMachine) continue;
    if (it->second->releasing.empty()) process.releasing.push_back(it->second);
    it->second->releasing[ipu.pcie_id()] = ipu.reason().substr(0, kMaxReason);
    touched.insert(it->second);
  }
  std::map<std::string, Partition*> affected;
  for (const Machine* machine : touched) {
    if (machine->agent == nullptr || machine->agent->cluster == nullptr) continue;
    for (Partition* partition :
         state_.PartitionsAt(*machine->agent->cluster, machine->agent->position))
      affected[partition->id()] = partition;
  }
  return affected;
}

void Controller::AutoReset(const vipuagent::HeartbeatRequest& request) {
  std::vector<Change> changes;
  std::vector<std::pair<Partition*, store::StoredPartition>> reset;
  for (int i = 0; i < request.detached_partitions_size(); ++i) {
    Partition* partition = state_.FindPartition(request.detached_partitions(i));
    if (partition == nullptr || partition->state != vipuuser::PS_ACTIVE ||
        partition->stored.requirements().reconfigurable() ||
        partition->stored.disable_auto_reset()) {
      continue;
    }
    // One that was reset meanwhile may have new clients.
    if (i < request.detached_generations_size() &&
        request.detached_generations(i) != partition->stored.generation())
      continue;
    store::StoredPartition next = partition->stored;
    next.set_generation(++generation_);
    changes.push_back({"partition", partition->id(), next.SerializeAsString()});
    reset.emplace_back(partition, std::move(next));
  }
  // One write for all, a thousand perhaps. If it fails they stay as they are: usable, only not
  // fresh.
  if (reset.empty() || !fenced_.ok() ||
      !store_->Commit(changes, {{{"generation", generation_}}, {}}).ok())
    return;
  for (auto& [partition, next] : reset) {
    partition->stored = std::move(next);
    state_.Touch(*partition);
    events_.Add(Severity::kInfo, absl::StrCat("partition ", partition->id()),
                "reset after its last client");
  }
}

void Controller::AddNames(const Process& process, const vipuagent::HeartbeatRequest& request,
                          vipuagent::HeartbeatReply& reply) {
  reply.set_names_version(absl::StrCat(boot_id_, ".", names_version_));
  if (request.names_version() == reply.names_version()) return;
  for (const Machine* machine : process.machines) {
    if (machine->agent == nullptr) continue;
    vipuagent::MachineName* name = reply.add_names();
    name->set_host(machine->description.host());
    name->set_agent_id(machine->agent->stored.id());
  }
}

}  // namespace vpod::controller
