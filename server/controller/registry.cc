// The agents' processes: which machines they hold, and whether they live. How their machines are is
// in health.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/arch/topology.h"
#include "device/base/keyed_hash.h"
#include "device/base/secret.h"
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
  VPOD_RETURN_IF_ERROR(CheckText("controller_boot_id", request.controller_boot_id(), kMaxName));
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

// Whether one of its machines was added.
bool HasAgents(const Process& process) {
  return std::any_of(process.machines.begin(), process.machines.end(),
                     [](const Machine* machine) { return machine->agent != nullptr; });
}

}  // namespace

std::string Controller::ProofOf(const std::string& boot_id, uint64_t epoch) const {
  return base::KeyedHashHex(store_->key(),
                            absl::StrCat("controller ", boot_id, " of epoch ", epoch));
}

const std::string& Controller::OwnProof() {
  if (own_proof_.empty() || own_proof_epoch_ != store_->epoch()) {
    own_proof_epoch_ = store_->epoch();
    own_proof_ = ProofOf(boot_id_, own_proof_epoch_);
  }
  return own_proof_;
}

bool Controller::IsLater(const vipuagent::LaterController& other) const {
  if (other.epoch() != store_->epoch()) return other.epoch() > store_->epoch();
  return other.boot_id() != boot_id_;
}

absl::Status Controller::FenceIfProven(const vipuagent::LaterController& other,
                                       const std::string& endpoint) {
  const std::string text =
      absl::StrCat("one of epoch ", other.epoch(), " has configured the agent at ", endpoint,
                   "; this one has epoch ", store_->epoch());
  if (!base::IsSecret(ProofOf(other.boot_id(), other.epoch()), other.proof())) {
    return absl::FailedPreconditionError(
        absl::StrCat("No proof that another controller has taken over: it is said that ", text,
                     ". If that is so, stop one of the two and restart the agent."));
  }
  Fence(text);
  return fenced_;
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
  std::vector<std::string> news;  // what is refused for a reason that was not known
  for (const vipuagent::Machine& machine : request.machines()) {
    const std::string address = HostPort(machine.host(), machine.port());
    const auto agent = state_.agent_by_address.find(address);
    const bool is_agent = agent != state_.agent_by_address.end();
    if (!is_agent && refused_.size() >= state_.agents.size() + kMaxUnknownMachines) continue;
    Refused& refused = refused_[address];
    refused.seen = options_.now();
    if (std::exchange(refused.reason, reason) == reason) continue;
    news.push_back(is_agent ? absl::StrCat("agent ", agent->second->stored.id())
                            : absl::StrCat("machine ", address));
  }
  // One event for one message, however many machines it names.
  if (news.size() == 1) {
    events_.Add(Severity::kError, news[0], absl::StrCat("refused: ", reason));
  } else if (!news.empty()) {
    events_.Add(Severity::kError, absl::StrCat("agents of ", request.endpoint()),
                absl::StrCat("refused: ", news.size(), " machines: ", reason));
  }
}

void Controller::Admit(Process& process, const vipuagent::RegisterRequest& request) {
  process.boot_id = request.boot_id();
  process.metrics_endpoint = request.metrics_endpoint();
  process.confirmed.clear();
  process.sequence = 0;
  process.was_sent_all = false;
  process.one_new_at_a_time = false;
  process.put_off.clear();
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
    if (request.controller_store() == store_->id()) {
      vipuagent::LaterController controller;
      controller.set_epoch(request.controller_epoch());
      controller.set_boot_id(request.controller_boot_id());
      controller.set_proof(request.controller_proof());
      if (IsLater(controller)) return FenceIfProven(controller, request.endpoint());
    }
    for (const vipuagent::Machine& machine : request.machines())
      refused_.erase(HostPort(machine.host(), machine.port()));
    const auto known = state_.processes.find(request.endpoint());
    Process& process =
        known != state_.processes.end() ? *known->second : state_.AddProcess(request.endpoint());
    const bool is_new = !base::IsSecret(process.boot_id, request.boot_id());
    const bool was_up = process.up && !is_new;
    std::map<std::string, Partition*> affected;
    if (!was_up) affected = process.partitions;
    if (is_new) Admit(process, request);
    process.heard_on = heard_on;
    state_.SetSeen(process, Now());
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
    if (HasAgents(*process) || process->in_flight || !process->partitions.empty()) continue;
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
    if (it == state_.processes.end() || !base::IsSecret(it->second->boot_id, request.boot_id())) {
      reply.set_register_(true);
      return reply;
    }
    Process& process = *it->second;
    const bool was_up = process.up;
    state_.SetSeen(process, Now());
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

void Controller::NoteAnswer(Process& process) {
  // A process that sends no heartbeat for long is lost all the same: nobody knows how its machines
  // are.
  constexpr int kMostTimeouts = 12;
  if (process.up && options_.now() - process.seen <= kMostTimeouts * options_.agent_timeout)
    state_.SetHeard(process, Now());
}

void Controller::SetSilentDown() {
  const SignOfLife now = Now();
  const auto waited = [&](const Process& process) {
    return now.time - std::max(process.heard.time, listening_since_.time);
  };
  const auto ticks = static_cast<uint64_t>(options_.agent_timeout / options_.tick_interval);
  while (!state_.processes_by_age.empty()) {
    Process& oldest = *state_.processes_by_age.front();
    if (waited(oldest) <= options_.agent_timeout ||
        now.ticks - std::max(oldest.heard.ticks, listening_since_.ticks) < ticks)
      break;
    SetDown(oldest);
  }
  // The heartbeat of a silent process may be on its way, or wait here. The process is sent a
  // configuration that changes nothing; only a process that works confirms it.
  for (Process* process : state_.processes_by_age) {
    if (2 * waited(*process) <= options_.agent_timeout) break;
    if (HasAgents(*process)) state_.dirty[process->endpoint] = process;
  }
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
