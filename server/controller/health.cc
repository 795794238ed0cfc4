// What the agents' processes tell of their machines: what has failed, what is held and by whom, and
// which partitions have lost their last client.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/topology.h"
#include "device/base/object_id.h"
#include "device/base/text.h"
#include "server/controller/controller.h"

namespace vpod::controller {
namespace {

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
  // Each IPU and each link counts once, however often it is named.
  for (const uint32_t ipu : health.failed_ipus()) {
    if (ipu >= arch::kIpusPerMachine || (machine.failed_ipus >> ipu & 1) != 0) continue;
    machine.failed_ipus |= 1u << ipu;
    troubles.push_back(absl::StrCat("IPU ", ipu, " failed"));
  }
  for (const uint32_t ipu : health.parity_ipus()) {
    if (ipu < arch::kIpusPerMachine) machine.parity_ipus |= 1u << ipu;
  }
  std::set<absl::string_view> links;
  for (const std::string& link : health.failed_links()) {
    // Shown to people, so only about ports that exist, and in few words.
    constexpr size_t kMaxText = 100;
    const std::string port = link.substr(0, link.find(' '));
    if (!arch::FindPort(port).ok() || !base::IsTextLine(link) || link.size() > kMaxText) continue;
    if (!links.insert(link).second) continue;
    AddFailedLink(port, machine);
    troubles.push_back(absl::StrCat("link ", link));
  }
  std::map<std::string, std::vector<uint32_t>> unclaimed;  // IPUs by who holds them
  uint32_t held = 0;
  for (const vipuagent::Holding& holding : health.unclaimed()) {
    if (holding.pcie_id() >= arch::kIpusPerMachine || (held >> holding.pcie_id() & 1) != 0)
      continue;
    held |= 1u << holding.pcie_id();
    machine.failed_ipus |= 1u << holding.pcie_id();
    unclaimed[absl::StrCat(base::Printable(holding.holder()), " of partition ",
                           base::Printable(holding.partition_id(), base::kMaxObjectId))]
        .push_back(holding.pcie_id());
  }
  for (const auto& [holder, ipus] : unclaimed) {
    troubles.push_back(absl::StrCat(ipus.size() == 1 ? "IPU " : "IPUs ", absl::StrJoin(ipus, " "),
                                    ipus.size() == 1 ? " is" : " are", " UNCLAIMED: ", holder,
                                    " holds ", ipus.size() == 1 ? "it" : "them",
                                    " until it ends, or until 'reset agent'"));
  }
  if (troubles.empty()) return;
  machine.trouble =
      base::Printable(absl::StrCat(absl::StrJoin(troubles, ", "), "."), kMostTroubleBytes);
}

// Adds events about IPUs of the agent that need a parity init, or need none any more, to the
// partition that has the IPUs. `before` and `now` have bit i for PCIe id i.
void AddParityEvents(const State& state, const Agent& agent, uint32_t before, uint32_t now,
                     EventLog& events) {
  std::map<std::string, uint32_t> changed;  // by the partition's id; empty: in no partition
  for (uint32_t ipu = 0; ipu < arch::kIpusPerMachine; ++ipu) {
    if (((before ^ now) >> ipu & 1) == 0) continue;
    const Partition* partition = state.PartitionOfIpu(agent, ipu);
    changed[partition == nullptr ? "" : partition->id()] |= 1u << ipu;
  }
  for (const auto& [id, ipus] : changed) {
    const std::string place = absl::StrCat("agent ", agent.stored.id());
    const std::string object = id.empty() ? place : absl::StrCat("partition ", id);
    const std::string prefix = id.empty() ? "" : absl::StrCat("Agent ", agent.stored.id(), ": ");
    if (const uint32_t broken = ipus & now; broken != 0) {
      events.Add(
          Severity::kError, object,
          absl::StrCat(prefix, ParityText(broken, id.empty() ? absl::StrCat("'reset ", place, "'")
                                                             : kPartitionParityCure)));
    }
    if (const uint32_t well = ipus & before; well != 0) {
      events.Add(Severity::kInfo, object,
                 absl::StrCat(prefix, IpusText(well), ": no parity init is needed any more."));
    }
  }
}

}  // namespace

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
    vipuagent::Holding& kept = *health.add_unclaimed();
    kept = holding;
    kept.set_partition_id(base::Printable(holding.partition_id(), base::kMaxObjectId));
    kept.set_holder(base::Printable(holding.holder()));
  }
  vipuagent::HeartbeatRequest heartbeat;
  for (auto& [host, health] : by_host) *heartbeat.add_unwell() = std::move(health);
  return heartbeat;
}

void Controller::SetHealth(Process& process, const vipuagent::HeartbeatRequest& request) {
  struct Before {
    uint32_t parity_ipus;
    std::string trouble;
  };
  std::map<Machine*, Before> touched;
  const auto touch = [&](Machine* machine) {
    touched.try_emplace(machine, Before{machine->parity_ipus, machine->trouble});
    machine->failed_ipus = 0;
    machine->parity_ipus = 0;
    machine->gateway_failed = false;
    machine->trouble.clear();
  };
  for (Machine* machine : std::exchange(process.unwell, {})) touch(machine);
  std::set<const Machine*> named;
  for (const vipuagent::MachineHealth& health : request.unwell()) {
    const auto it = process.machine_by_host.find(health.host());
    if (it == process.machine_by_host.end()) continue;
    touch(it->second);
    TakeOver(health, *it->second);
    const bool unwell = !it->second->trouble.empty() || it->second->parity_ipus != 0;
    if (unwell && named.insert(it->second).second) process.unwell.push_back(it->second);
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
    AddParityEvents(state_, *agent, before.parity_ipus, machine->parity_ipus, events_);
    if (agent->cluster == nullptr) continue;
    state_.RefreshService(*agent);
    for (Partition* partition : state_.PartitionsAt(*agent->cluster, agent->position))
      affected[partition->id()] = partition;
  }
  for (const auto& [id, partition] : affected) UpdateState(*partition, /*health_is_fresh=*/true);
}

std::map<std::string, Partition*> Controller::SetReleasing(
    Process& process, const google::protobuf::RepeatedPtrField<vipuagent::ReleasingIpu>& ipus) {
  constexpr size_t kMaxReason = 512;  // in bytes of whole characters
  std::set<Machine*> touched;
  for (Machine* machine : std::exchange(process.releasing, {})) {
    machine->releasing.clear();
    touched.insert(machine);
  }
  for (const vipuagent::ReleasingIpu& ipu : ipus) {
    const auto it = process.machine_by_host.find(ipu.host());
    if (it == process.machine_by_host.end() || ipu.pcie_id() >= arch::kIpusPerMachine) continue;
    if (it->second->releasing.empty()) process.releasing.push_back(it->second);
    it->second->releasing[ipu.pcie_id()] = base::Printable(ipu.reason(), kMaxReason);
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
  std::set<const Partition*> seen;
  for (int i = 0; i < request.detached_partitions_size(); ++i) {
    Partition* partition = state_.FindPartition(request.detached_partitions(i));
    if (partition == nullptr || partition->state != vipuuser::PS_ACTIVE ||
        partition->stored.requirements().reconfigurable() ||
        partition->stored.disable_auto_reset()) {
      continue;
    }
    // A partition that was reset meanwhile may have new clients.
    if (i < request.detached_generations_size() &&
        request.detached_generations(i) != partition->stored.generation())
      continue;
    if (!seen.insert(partition).second) continue;
    store::StoredPartition next = partition->stored;
    next.set_generation(++generation_);
    changes.push_back({"partition", partition->id(), next.SerializeAsString()});
    reset.emplace_back(partition, std::move(next));
  }
  // One write resets all of them, perhaps a thousand. If it fails, the partitions stay usable; they
  // are only not fresh.
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

}  // namespace vpod::controller
