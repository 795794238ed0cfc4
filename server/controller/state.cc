#include "server/controller/state.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"

namespace vpod::controller {
namespace {

using arch::kIpusPerMachine;

template <class Map>
auto* Find(const Map& map, const std::string& id) {
  const auto it = map.find(id);
  return it == map.end() ? nullptr : it->second.get();
}

// PCIe ids count downwards as positions rise.
uint32_t ByPosition(uint32_t by_pcie_id) {
  uint32_t mask = 0;
  for (uint32_t p = 0; p < kIpusPerMachine; ++p)
    mask |= (by_pcie_id >> arch::IpuNumberOfPosition(p) & 1) << p;
  return mask;
}

void ClearHealth(Machine& machine) {
  machine.failed_ipus = 0;
  machine.parity_ipus = 0;
  machine.gateway_failed = false;
  machine.trouble.clear();
  machine.releasing.clear();
}

}  // namespace

std::string HostPort(const std::string& host, uint32_t port) {
  return absl::StrCat(host, ":", port);
}

uint32_t Cluster::ipus_per_ild() const {
  return static_cast<uint32_t>(stored.agent_ids_size()) / stored.num_ipulinkdomains() *
         kIpusPerMachine;
}

uint32_t Allocation::ToCluster(uint32_t ipu) const {
  return positions[ipu / kIpusPerMachine] * kIpusPerMachine + ipu % kIpusPerMachine;
}

uint32_t Allocation::FromCluster(uint32_t ipu) const {
  const uint32_t machine = ipu / kIpusPerMachine;
  const auto it = std::lower_bound(positions.begin(), positions.end(), machine);
  if (it == positions.end() || *it != machine) return UINT32_MAX;
  return static_cast<uint32_t>(it - positions.begin()) * kIpusPerMachine + ipu % kIpusPerMachine;
}

bool Concerns(const Machine& machine, const Partition& partition) {
  if (machine.agent == nullptr || machine.agent->cluster != partition.cluster) return false;
  const uint32_t first = machine.agent->position * kIpusPerMachine;
  const uint32_t end = partition.first() + partition.size();
  if (first >= end || first + kIpusPerMachine <= partition.first()) return false;
  if (machine.gateway_failed && partition.stored.requirements().num_ilds() > 1) return true;
  const uint32_t failed = ByPosition(machine.failed_ipus);
  for (uint32_t p = 0; p < kIpusPerMachine; ++p) {
    const uint32_t ipu = first + p;
    if ((failed >> p & 1) != 0 && ipu - partition.first() < partition.size()) return true;
  }
  return false;
}

PartitionAccess AccessTo(const Partition& partition) {
  const vipuuser::PartitionRequirements& r = partition.stored.requirements();
  return {r.id(), r.allocation_id(), partition.stored.created_by(), r.shared()};
}

std::string FindReleasing(const Partition& partition) {
  for (const Process* holder : partition.holders) {
    for (const Machine* machine : holder->releasing) {
      if (machine->agent == nullptr || machine->agent->cluster != partition.cluster) continue;
      for (const auto& [pcie_id, reason] : machine->releasing) {
        const uint32_t ipu =
            machine->agent->position * kIpusPerMachine + arch::IpuNumberOfPosition(pcie_id);
        if (ipu - partition.first() >= partition.size()) continue;
        return absl::StrCat("Agent ", machine->agent->stored.id(), ": IPU ", pcie_id, ": ", reason,
                            ".");
      }
    }
  }
  return "";
}

std::string IpusText(uint32_t ipus) {
  std::string text;
  for (uint32_t ipu = 0; ipu < kIpusPerMachine; ++ipu) {
    if ((ipus >> ipu & 1) != 0) absl::StrAppend(&text, text.empty() ? "" : " ", ipu);
  }
  return absl::StrCat(std::has_single_bit(ipus) ? "IPU " : "IPUs ", text);
}

std::string ParityText(uint32_t ipus, absl::string_view cure) {
  return absl::StrCat(IpusText(ipus), std::has_single_bit(ipus) ? " needs" : " need",
                      " a parity init: ", cure, ".");
}

std::string FindParityError(const Partition& partition) {
  for (const Process* holder : partition.holders) {
    for (const Machine* machine : holder->unwell) {
      if (machine->agent == nullptr || machine->agent->cluster != partition.cluster) continue;
      uint32_t ipus = 0;
      for (uint32_t pcie_id = 0; pcie_id < kIpusPerMachine; ++pcie_id) {
        const uint32_t ipu =
            machine->agent->position * kIpusPerMachine + arch::IpuNumberOfPosition(pcie_id);
        if (ipu - partition.first() < partition.size())
          ipus |= machine->parity_ipus & (1u << pcie_id);
      }
      if (ipus != 0)
        return absl::StrCat("Agent ", machine->agent->stored.id(), ": ",
                            ParityText(ipus, kPartitionParityCure));
    }
  }
  return "";
}

std::vector<const Agent*> Unregistered(const Partition& partition) {
  std::vector<const Agent*> agents;
  if (partition.unregistered == 0) return agents;
  const uint32_t last = (partition.first() + partition.size() - 1) / kIpusPerMachine;
  for (uint32_t p = partition.first() / kIpusPerMachine; p <= last; ++p) {
    const Agent* agent = partition.cluster->agents[p];
    if (agent->machine == nullptr) agents.push_back(agent);
  }
  return agents;
}

std::pair<Trouble, std::string> FindTrouble(const Partition& partition) {
  for (const Process* holder : partition.holders) {
    if (holder->up) continue;
    for (uint32_t p = partition.first() / kIpusPerMachine;; ++p) {
      const Agent& agent = *partition.cluster->agents[p];
      if (agent.machine != nullptr && agent.machine->process == holder) {
        return {Trouble::kAgentLost,
                absl::StrCat("Agent ", agent.stored.id(), " does not answer.")};
      }
    }
  }
  for (const Agent* agent : Unregistered(partition)) {
    if (agent->missing)
      return {Trouble::kAgentLost, absl::StrCat("Agent ", agent->stored.id(), " does not answer.")};
  }
  for (const Process* holder : partition.holders) {
    for (const Machine* machine : holder->unwell) {
      if (Concerns(*machine, partition)) {
        return {Trouble::kUnwell,
                absl::StrCat("Agent ", machine->agent->stored.id(), ": ", machine->trouble)};
      }
    }
  }
  return {Trouble::kNone, ""};
}

// --- Questions ---

Agent* State::FindAgent(const std::string& id) const { return Find(agents, id); }
Cluster* State::FindCluster(const std::string& id) const { return Find(clusters, id); }
Partition* State::FindPartition(const std::string& id) const { return Find(partitions, id); }

Allocation* State::FindAllocation(const std::string& id) const {
  Allocation* allocation = Find(allocations, id);
  return allocation != nullptr && allocation->visible() ? allocation : nullptr;
}

std::vector<Partition*> State::PartitionsAt(const Cluster& cluster, uint32_t position) const {
  std::vector<Partition*> result;
  const uint32_t begin = position * kIpusPerMachine, end = begin + kIpusPerMachine;
  auto it = cluster.partitions.upper_bound(begin);
  if (it != cluster.partitions.begin()) --it;
  for (; it != cluster.partitions.end() && it->first < end; ++it) {
    if (it->first + it->second->size() > begin) result.push_back(it->second);
  }
  return result;
}

Partition* State::PartitionOfIpu(const Agent& agent, uint32_t pcie_id) const {
  if (agent.cluster == nullptr) return nullptr;
  // The position is the mirror of the number.
  const uint32_t ipu = agent.position * kIpusPerMachine + arch::IpuNumberOfPosition(pcie_id);
  for (Partition* partition : PartitionsAt(*agent.cluster, agent.position)) {
    if (ipu - partition->first() < partition->size()) return partition;
  }
  return nullptr;
}

uint32_t State::FreeIpus(const Agent& agent) const {
  uint32_t free = 0;
  for (uint32_t ipu = 0; ipu < kIpusPerMachine; ++ipu)
    free += PartitionOfIpu(agent, ipu) == nullptr;
  return free;
}

std::vector<Agent*> State::AgentsOf(const Partition& partition) const {
  const auto begin = partition.cluster->agents.begin();
  return {begin + partition.first() / kIpusPerMachine,
          begin + (partition.first() + partition.size() - 1) / kIpusPerMachine + 1};
}

// --- Agents ---

Agent& State::AddAgent(store::StoredAgent stored) {
  auto& agent = agents[stored.id()] = std::make_unique<Agent>();
  agent->stored = std::move(stored);
  const std::string address = HostPort(agent->stored.host(), agent->stored.port());
  agent_by_address[address] = agent.get();
  SetMachine(*agent, Find(machines, address));
  return *agent;
}

void State::SetMachine(Agent& agent, Machine* machine) {
  awaited.erase({agent.awaited_since, &agent});
  agent.missing = false;
  agent.machine = machine;
  if (machine != nullptr) machine->agent = &agent;
}

void State::Await(Agent& agent, Clock::time_point now) {
  agent.awaited_since = now;
  awaited.emplace(now, &agent);
}

void State::SetMissing(Agent& agent) {
  awaited.erase({agent.awaited_since, &agent});
  agent.missing = true;
  RefreshService(agent);
}

void State::RemoveAgent(Agent& agent) {
  if (agent.machine != nullptr) agent.machine->agent = nullptr;
  awaited.erase({agent.awaited_since, &agent});
  agent_by_address.erase(HostPort(agent.stored.host(), agent.stored.port()));
  agents.erase(std::string(agent.stored.id()));
}

void State::MoveAgent(Agent& agent, const std::string& host, uint32_t port) {
  if (agent.machine != nullptr) agent.machine->agent = nullptr;
  agent_by_address.erase(HostPort(agent.stored.host(), agent.stored.port()));
  agent.stored.set_host(host);
  agent.stored.set_port(port);
  const std::string address = HostPort(host, port);
  agent_by_address[address] = &agent;
  SetMachine(agent, Find(machines, address));
  if (agent.cluster == nullptr) return;
  for (Partition* partition : PartitionsAt(*agent.cluster, agent.position)) FindHolders(*partition);
  RefreshService(agent);
}

// --- Clusters and allocations ---

Cluster& State::AddCluster(store::StoredCluster stored) {
  auto& cluster = clusters[stored.id()] = std::make_unique<Cluster>();
  auto& allocation = allocations[stored.id()] = std::make_unique<Allocation>();
  allocation->id = stored.id();
  allocation->cluster = cluster.get();
  allocation->is_default = true;
  cluster->allocations[stored.id()] = cluster->default_allocation = allocation.get();
  SetClusterAgents(*cluster, std::move(stored));
  return *cluster;
}

void State::SetClusterAgents(Cluster& cluster, store::StoredCluster stored) {
  std::map<std::string, std::vector<std::string>> members;  // of allocations that are not default
  for (const auto& [id, allocation] : cluster.allocations) {
    if (allocation->is_default) continue;
    for (const uint32_t position : allocation->positions)
      members[id].push_back(cluster.agents[position]->stored.id());
  }
  for (Agent* agent : cluster.agents) agent->cluster = nullptr, agent->allocation = nullptr;
  cluster.stored = std::move(stored);
  cluster.agents.clear();
  for (const std::string& id : cluster.stored.agent_ids()) {
    Agent* agent = FindAgent(id);
    agent->cluster = &cluster;
    agent->position = static_cast<uint32_t>(cluster.agents.size());
    cluster.agents.push_back(agent);
  }
  for (const auto& [id, agent_ids] : members) {
    Allocation& allocation = *cluster.allocations[id];
    allocation.positions.clear();
    for (const std::string& agent_id : agent_ids)
      allocation.positions.push_back(FindAgent(agent_id)->position);
    std::sort(allocation.positions.begin(), allocation.positions.end());
    RebuildRoom(allocation);
  }
  RebuildDefault(cluster);
}

void State::RemoveCluster(Cluster& cluster) {
  for (Agent* agent : cluster.agents) agent->cluster = nullptr, agent->allocation = nullptr;
  allocations.erase(cluster.id());
  clusters.erase(std::string(cluster.id()));
}

Allocation& State::AddAllocation(const store::StoredAllocation& stored) {
  auto& allocation = allocations[stored.id()] = std::make_unique<Allocation>();
  allocation->id = stored.id();
  allocation->cluster = FindCluster(stored.cluster_id());
  allocation->cluster->allocations[stored.id()] = allocation.get();
  SetAllocationAgents(*allocation, stored);
  return *allocation;
}

void State::SetAllocationAgents(Allocation& allocation, const store::StoredAllocation& stored) {
  allocation.positions.clear();
  for (const std::string& id : stored.agent_ids())
    allocation.positions.push_back(FindAgent(id)->position);
  std::sort(allocation.positions.begin(), allocation.positions.end());
  RebuildRoom(allocation);
  RebuildDefault(*allocation.cluster);
}

void State::RemoveAllocation(Allocation& allocation) {
  Cluster& cluster = *allocation.cluster;
  cluster.allocations.erase(allocation.id);
  allocations.erase(std::string(allocation.id));
  RebuildDefault(cluster);
}

void State::RebuildDefault(Cluster& cluster) {
  std::vector<bool> taken(cluster.agents.size(), false);
  for (const auto& [id, allocation] : cluster.allocations) {
    if (allocation->is_default) continue;
    for (const uint32_t position : allocation->positions) taken[position] = true;
  }
  Allocation& allocation = *cluster.default_allocation;
  allocation.positions.clear();
  for (uint32_t position = 0; position < taken.size(); ++position) {
    if (!taken[position]) allocation.positions.push_back(position);
  }
  RebuildRoom(allocation);
}

void State::RebuildRoom(Allocation& allocation) {
  const Cluster& cluster = *allocation.cluster;
  const uint32_t ild_machines = cluster.ipus_per_ild() / kIpusPerMachine;
  std::vector<Run> runs;
  for (size_t i = 0; i < allocation.positions.size(); ++i) {
    const uint32_t position = allocation.positions[i], ild = position / ild_machines;
    const bool continues = i > 0 && position == allocation.positions[i - 1] + 1 &&
                           ild == allocation.positions[i - 1] / ild_machines;
    if (!continues) runs.push_back({.ipus = 0, .ild = ild, .is_whole_ild = false});
    runs.back().ipus += kIpusPerMachine;
    runs.back().is_whole_ild = runs.back().ipus == cluster.ipus_per_ild();
  }
  allocation.room = Room(allocation.id, cluster.ipus_per_ild(), runs, allocation.room.version());
  for (const auto& [first, partition] : cluster.partitions) {
    if (partition->allocation == &allocation)
      allocation.room.Take(allocation.FromCluster(first), partition->size());
  }
  for (const uint32_t position : allocation.positions) {
    cluster.agents[position]->allocation = &allocation;
    RefreshService(*cluster.agents[position]);
  }
}

// --- Partitions ---

void State::Touch(const Partition& partition) {
  for (Process* process : partition.holders) {
    process->changed.insert(partition.id());
    dirty[process->endpoint] = process;
  }
}

void State::Reconfirm(const Partition& partition) {
  for (Process* process : partition.holders) process->confirmed.erase(partition.id());
  Touch(partition);
}

void State::FindHolders(Partition& partition) {
  Touch(partition);
  for (Process* process : partition.holders) process->partitions.erase(partition.id());
  partition.holders.clear();
  partition.unregistered = 0;
  const Process* last = nullptr;
  for (const Agent* agent : AgentsOf(partition)) {
    if (agent->machine == nullptr) {
      ++partition.unregistered;
      continue;
    }
    Process* process = agent->machine->process;
    if (process == last) continue;
    last = process;
    if (process->partitions.try_emplace(partition.id(), &partition).second)
      partition.holders.push_back(process);
  }
  Reconfirm(partition);
}

void State::Place(Partition& partition) {
  partition.cluster = FindCluster(partition.stored.requirements().cluster_id());
  partition.allocation = FindAllocation(partition.stored.requirements().allocation_id());
  partition.cluster->partitions[partition.first()] = &partition;
  partition.cluster->used_ipus += partition.size();
  ++partition.allocation->num_partitions;
  partition.allocation->room.Take(partition.allocation->FromCluster(partition.first()),
                                  partition.size());
  FindHolders(partition);
}

void State::Displace(Partition& partition) {
  Touch(partition);
  for (Process* process : partition.holders) process->partitions.erase(partition.id());
  partition.holders.clear();
  partition.cluster->partitions.erase(partition.first());
  partition.cluster->used_ipus -= partition.size();
  --partition.allocation->num_partitions;
  partition.allocation->room.Release(partition.allocation->FromCluster(partition.first()),
                                     partition.size());
}

Partition& State::AddPartition(store::StoredPartition stored) {
  auto& partition = partitions[stored.requirements().id()] = std::make_unique<Partition>();
  partition->stored = std::move(stored);
  Place(*partition);
  return *partition;
}

void State::ReplacePartition(Partition& partition, store::StoredPartition stored) {
  Displace(partition);
  partition.stored = std::move(stored);
  Place(partition);
}

void State::RemovePartition(Partition& partition) {
  Displace(partition);
  partitions.erase(std::string(partition.id()));
}

// --- Processes ---

Process& State::AddProcess(const std::string& endpoint) {
  auto& process = processes[endpoint] = std::make_unique<Process>();
  process->endpoint = endpoint;
  silent.insert(process.get());
  return *process;
}

void State::SetSeen(Process& process, const SignOfLife& now) {
  process.seen = now.time;
  if (!process.up) {
    process.up = true;
    silent.erase(&process);
    process.by_age = processes_by_age.insert(processes_by_age.end(), &process);
  }
  SetHeard(process, now);
}

void State::SetHeard(Process& process, const SignOfLife& now) {
  process.heard = now;
  processes_by_age.splice(processes_by_age.end(), processes_by_age, process.by_age);
}

void State::SetSilent(Process& process) {
  process.up = false;
  processes_by_age.erase(process.by_age);
  silent.insert(&process);
}

void State::ForgetHealth(Process& process) {
  for (Machine* machine : process.unwell) {
    ClearHealth(*machine);
    if (machine->agent != nullptr) RefreshService(*machine->agent);
  }
  process.unwell.clear();
  for (Machine* machine : process.releasing) machine->releasing.clear();
  process.releasing.clear();
}

std::map<std::string, Partition*> State::SetMachines(
    Process& process, const google::protobuf::RepeatedPtrField<vipuagent::Machine>& descriptions) {
  const std::vector<Machine*> before = std::exchange(process.machines, {});
  process.machine_by_host.clear();
  std::set<Machine*> here;
  std::set<Process*> robbed;  // processes that lose machines to this one
  std::vector<Agent*> moved;
  for (const vipuagent::Machine& description : descriptions) {
    const std::string address = HostPort(description.host(), description.port());
    auto& machine = machines[address];
    if (machine == nullptr) machine = std::make_unique<Machine>();
    if (!here.insert(machine.get()).second) continue;  // named twice
    Process* const previous = std::exchange(machine->process, &process);
    const auto agent = agent_by_address.find(address);
    machine->description = description;
    machine->agent = nullptr;
    if (agent != agent_by_address.end()) SetMachine(*agent->second, machine.get());
    if (previous != &process) ClearHealth(*machine);
    process.machines.push_back(machine.get());
    process.machine_by_host[description.host()] = machine.get();
    if (previous != nullptr && previous != &process) robbed.insert(previous);
    if (machine->agent == nullptr) continue;
    if (previous != &process) moved.push_back(machine->agent);
    RefreshService(*machine->agent);
  }
  for (Process* other : robbed) {
    const auto lost = [&](const Machine* machine) { return machine->process != other; };
    std::erase_if(other->machines, lost);
    std::erase_if(other->unwell, lost);
    std::erase_if(other->releasing, lost);
    std::erase_if(other->machine_by_host, [&](const auto& entry) { return lost(entry.second); });
  }
  std::erase_if(process.unwell, [&](Machine* machine) { return !here.contains(machine); });
  std::erase_if(process.releasing, [&](Machine* machine) { return !here.contains(machine); });
  for (Machine* machine : before) {
    if (here.contains(machine)) continue;
    if (machine->agent != nullptr) {
      moved.push_back(machine->agent);
      SetMachine(*machine->agent, nullptr);
      Await(*machine->agent, process.seen);
      RefreshService(*machine->agent);
    }
    machines.erase(HostPort(machine->description.host(), machine->description.port()));
  }
  std::map<std::string, Partition*> changed;
  for (const Agent* agent : moved) {
    if (agent->cluster == nullptr) continue;
    for (Partition* partition : PartitionsAt(*agent->cluster, agent->position))
      changed[partition->id()] = partition;
  }
  for (const auto& [id, partition] : changed) FindHolders(*partition);
  return changed;
}

void State::RemoveProcess(Process& process) {
  if (process.up) processes_by_age.erase(process.by_age);
  silent.erase(&process);
  for (const Machine* machine : process.machines)
    machines.erase(HostPort(machine->description.host(), machine->description.port()));
  dirty.erase(process.endpoint);
  processes.erase(std::string(process.endpoint));
}

void State::RefreshService(const Agent& agent) {
  if (agent.allocation == nullptr) return;
  const Machine* machine = agent.machine;
  // One that never registered may still come; one that is lost is not waited for.
  const bool lost = machine == nullptr ? agent.missing : !machine->process->up;
  const uint32_t out = lost                 ? (1u << kIpusPerMachine) - 1
                       : machine == nullptr ? 0
                                            : ByPosition(machine->failed_ipus);
  const uint32_t first = agent.allocation->FromCluster(agent.position * kIpusPerMachine);
  agent.allocation->room.SetOutOfService(first, out);
  agent.allocation->room.SetGwLinks(first, machine == nullptr || !machine->gateway_failed);
}

}  // namespace vpod::controller
