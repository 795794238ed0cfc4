#include "server/controller/random_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vpod::controller {
namespace {

using Code = absl::StatusCode;

bool PowerOfTwo(uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

}  // namespace

uint32_t Model::IpusPerIld(const Cluster& cluster) {
  return static_cast<uint32_t>(cluster.agents.size()) / cluster.ilds * 4;
}

std::string Model::ClusterOf(const std::string& agent) const {
  for (const auto& [id, cluster] : clusters) {
    if (std::count(cluster.agents.begin(), cluster.agents.end(), agent) > 0) return id;
  }
  return "";
}

std::string Model::AllocationOf(const std::string& agent) const {
  for (const auto& [id, allocation] : allocations) {
    if (allocation.agents.contains(agent)) return id;
  }
  return ClusterOf(agent);
}

std::set<std::string> Model::AgentsOfAllocation(const std::string& id) const {
  if (allocations.contains(id)) return allocations.at(id).agents;
  std::set<std::string> result;
  if (!clusters.contains(id)) return result;
  for (const std::string& agent : clusters.at(id).agents) {
    if (AllocationOf(agent) == id) result.insert(agent);
  }
  return result;
}

std::vector<std::string> Model::Allocations() const {
  std::set<std::string> ids;
  for (const auto& [id, allocation] : allocations) ids.insert(id);
  for (const auto& [id, cluster] : clusters) {
    if (!AgentsOfAllocation(id).empty()) ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

std::string Model::ProcessOf(const std::string& agent) const {
  for (const auto& [name, process] : known) {
    if (process.hosts.contains(agents.at(agent))) return name;
  }
  return "";
}

std::string Model::StatusOf(const std::string& agent) const {
  const std::string process = ProcessOf(agent);
  if (process.empty()) return "Unknown";
  return known.at(process).up ? "Up" : "Down";
}

std::vector<std::string> Model::Ipus(const Partition& partition) const {
  std::vector<std::string> result;
  const Cluster& cluster = clusters.at(partition.wanted.cluster);
  for (uint32_t i = partition.first; i < partition.first + partition.wanted.size; ++i)
    result.push_back(absl::StrCat(cluster.agents[i / 4], ":", 3 - i % 4));
  return result;
}

std::vector<std::string> Model::AgentsOf(const Partition& partition) const {
  const Cluster& cluster = clusters.at(partition.wanted.cluster);
  std::vector<std::string> result;
  for (uint32_t m = partition.first / 4; m <= (partition.first + partition.wanted.size - 1) / 4;
       ++m)
    result.push_back(cluster.agents[m]);
  return result;
}

std::string Model::PartitionOf(const std::string& agent, uint32_t pcie_id) const {
  const std::string wanted = absl::StrCat(agent, ":", pcie_id);
  for (const auto& [id, partition] : partitions) {
    for (const std::string& ipu : Ipus(partition)) {
      if (ipu == wanted) return id;
    }
  }
  return "";
}

uint32_t Model::FreeIpus(const std::string& agent) const {
  uint32_t free = 0;
  for (uint32_t ipu = 0; ipu < 4; ++ipu) free += PartitionOf(agent, ipu).empty();
  return free;
}

bool Model::Usable(const std::string& agent, uint32_t pcie_id) const {
  const std::string process = ProcessOf(agent);
  if (process.empty()) return true;
  if (!known.at(process).up) return false;
  const auto failed = failed_.find(process);
  if (failed == failed_.end()) return true;
  const auto mask = failed->second.find(agents.at(agent));
  return mask == failed->second.end() || (mask->second >> pcie_id & 1) == 0;
}

// --- Agents ---

Code Model::CreateAgent(const std::string& id, const std::string& host) {
  if (agents.contains(id)) return Code::kAlreadyExists;
  for (const auto& [other, address] : agents) {
    if (address == host) return Code::kAlreadyExists;
  }
  agents[id] = host;
  return Code::kOk;
}

Code Model::UpdateAgent(const std::string& id, const std::string& host) {
  if (!agents.contains(id)) return Code::kNotFound;
  if (agents[id] == host) return Code::kOk;
  for (const auto& [other, address] : agents) {
    if (address == host) return Code::kAlreadyExists;
  }
  agents[id] = host;
  Follow(false);
  return Code::kOk;
}

Code Model::RemoveAgent(const std::string& id) {
  if (!agents.contains(id)) return Code::kNotFound;
  if (!ClusterOf(id).empty()) return Code::kFailedPrecondition;
  agents.erase(id);
  return Code::kOk;
}

void Model::DiscoverAgents(const std::map<std::string, std::string>& ids) {
  for (const auto& [host, id] : ids) agents[id] = host;
}

// --- Clusters and allocations ---

Code Model::CheckShape(const Cluster& cluster) const {
  if (cluster.agents.empty() || cluster.agents.size() % cluster.ilds != 0 ||
      cluster.agents.size() / cluster.ilds > 16 || (cluster.gateways && cluster.ilds == 1))
    return Code::kInvalidArgument;
  return Code::kOk;
}

Code Model::CreateCluster(const std::string& id, const Cluster& cluster) {
  if (CheckShape(cluster) != Code::kOk) return Code::kInvalidArgument;
  if (clusters.contains(id) || allocations.contains(id)) return Code::kAlreadyExists;
  std::set<std::string> seen;
  for (const std::string& agent : cluster.agents) {
    if (!agents.contains(agent)) return Code::kNotFound;
    if (!seen.insert(agent).second) return Code::kInvalidArgument;
    if (!ClusterOf(agent).empty()) return Code::kAlreadyExists;
  }
  clusters[id] = cluster;
  return Code::kOk;
}

Code Model::UpdateCluster(const std::string& id, const std::vector<std::string>& members) {
  if (!clusters.contains(id)) return Code::kNotFound;
  Cluster next = clusters[id];
  next.agents = members;
  if (CheckShape(next) != Code::kOk) return Code::kInvalidArgument;
  std::set<std::string> seen;
  for (const std::string& agent : members) {
    if (!agents.contains(agent)) return Code::kNotFound;
    if (!seen.insert(agent).second) return Code::kInvalidArgument;
    const std::string other = ClusterOf(agent);
    if (!other.empty() && other != id) return Code::kAlreadyExists;
  }
  for (const auto& [name, allocation] : allocations) {
    if (allocation.cluster != id) continue;
    for (const std::string& agent : allocation.agents) {
      if (!seen.contains(agent)) return Code::kFailedPrecondition;
    }
  }
  const uint32_t before = IpusPerIld(clusters[id]), after = IpusPerIld(next);
  for (const auto& [name, partition] : partitions) {
    if (partition.wanted.cluster != id) continue;
    if ((partition.wanted.size % before == 0) != (partition.wanted.size % after == 0))
      return Code::kFailedPrecondition;
    for (uint32_t ipu = partition.first; ipu < partition.first + partition.wanted.size; ++ipu) {
      if (ipu / 4 >= members.size() || members[ipu / 4] != clusters[id].agents[ipu / 4] ||
          ipu / before != ipu / after)
        return Code::kFailedPrecondition;
    }
  }
  clusters[id] = next;
  return Code::kOk;
}

Code Model::RemoveCluster(const std::string& id) {
  if (!clusters.contains(id)) return Code::kNotFound;
  for (const auto& [name, partition] : partitions) {
    if (partition.wanted.cluster == id) return Code::kFailedPrecondition;
  }
  for (const auto& [name, allocation] : allocations) {
    if (allocation.cluster == id) return Code::kFailedPrecondition;
  }
  clusters.erase(id);
  return Code::kOk;
}

Code Model::CheckMembers(const std::string& cluster, const std::string& allocation,
                         const std::set<std::string>& members) const {
  if (members.empty()) return Code::kInvalidArgument;
  for (const std::string& agent : members) {
    if (!agents.contains(agent)) return Code::kNotFound;
    if (ClusterOf(agent) != cluster) return Code::kInvalidArgument;
    const std::string present = AllocationOf(agent);
    if (present == allocation) continue;
    if (present != cluster) return Code::kAlreadyExists;
    if (FreeIpus(agent) < 4) return Code::kFailedPrecondition;
  }
  if (allocation.empty()) return Code::kOk;
  for (const std::string& agent : allocations.at(allocation).agents) {
    if (!members.contains(agent) && FreeIpus(agent) < 4) return Code::kFailedPrecondition;
  }
  return Code::kOk;
}

Code Model::CreateAllocation(const std::string& id, const Allocation& allocation) {
  if (allocations.contains(id) || clusters.contains(id)) return Code::kAlreadyExists;
  if (!clusters.contains(allocation.cluster)) return Code::kNotFound;
  const Code code = CheckMembers(allocation.cluster, "", allocation.agents);
  if (code == Code::kOk) allocations[id] = allocation;
  return code;
}

Code Model::UpdateAllocation(const std::string& id, const std::set<std::string>& members) {
  if (!allocations.contains(id)) {
    return AgentsOfAllocation(id).empty() ? Code::kNotFound : Code::kFailedPrecondition;
  }
  const Code code = CheckMembers(allocations[id].cluster, id, members);
  if (code == Code::kOk) allocations[id].agents = members;
  return code;
}

Code Model::RemoveAllocation(const std::string& id) {
  if (!allocations.contains(id)) {
    return AgentsOfAllocation(id).empty() ? Code::kNotFound : Code::kFailedPrecondition;
  }
  for (const auto& [name, partition] : partitions) {
    if (partition.wanted.allocation == id) return Code::kFailedPrecondition;
  }
  allocations.erase(id);
  return Code::kOk;
}

// --- Partitions ---

Code Model::Complete(const Cluster& cluster, Wanted& wanted) const {
  const uint32_t ild = IpusPerIld(cluster);
  if (!PowerOfTwo(wanted.size)) return Code::kInvalidArgument;
  const uint32_t ilds = (wanted.size + ild - 1) / ild;
  if (ilds > 1 && cluster.ilds > 1 && !cluster.gateways) return Code::kInvalidArgument;
  if (wanted.gcds == 0) wanted.gcds = ilds;
  if (wanted.gcds > wanted.size || wanted.size % wanted.gcds != 0 || wanted.gcds < ilds)
    return Code::kInvalidArgument;
  if (wanted.reconfigurable.value_or(false) && ilds > 1) return Code::kInvalidArgument;
  if (wanted.routing == "ringswnc" && !(cluster.torus && wanted.size % ild == 0))
    return Code::kInvalidArgument;
  return Code::kOk;
}

Code Model::Place(const std::string& allocation, const Wanted& wanted, const std::string& replaced,
                  uint32_t& first) const {
  const std::set<std::string> members = AgentsOfAllocation(allocation);
  const std::string cluster_id =
      allocations.contains(allocation) ? allocations.at(allocation).cluster : allocation;
  const Cluster& cluster = clusters.at(cluster_id);
  const uint32_t ild = IpusPerIld(cluster);
  // Positions in the cluster, of the allocation's IPUs in order.
  std::vector<uint32_t> positions;
  std::map<uint32_t, bool> free;
  for (uint32_t i = 0; i < cluster.agents.size() * 4; ++i) {
    const std::string& agent = cluster.agents[i / 4];
    if (!members.contains(agent)) continue;
    const std::string holder = PartitionOf(agent, 3 - i % 4);
    positions.push_back(i);
    free[i] = (holder.empty() || holder == replaced) && Usable(agent, 3 - i % 4);
  }
  const uint32_t size = wanted.size;
  const auto all_free = [&](uint32_t begin, uint32_t count) {
    for (uint32_t i = begin; i < begin + count; ++i) {
      if (!free.contains(i) || !free.at(i)) return false;
    }
    return true;
  };
  const auto all_there = [&](uint32_t begin, uint32_t count) {
    for (uint32_t i = begin; i < begin + count; ++i) {
      if (!free.contains(i)) return false;
    }
    return true;
  };
  // First IPU of the run of neighbouring machines in one ILD that holds the position.
  const auto run_start = [&](uint32_t position) {
    uint32_t begin = position / 4 * 4;
    while (begin % ild != 0 && free.contains(begin - 4)) begin -= 4;
    return begin;
  };
  if (size > positions.size()) return Code::kResourceExhausted;
  if (wanted.index.has_value()) {
    const uint64_t at = uint64_t{*wanted.index} * size;
    if (at + size > positions.size()) return Code::kInvalidArgument;
    first = positions[at];
    const bool one_piece = positions[at + size - 1] == first + size - 1;
    const bool fits = size <= ild ? one_piece && first / ild == (first + size - 1) / ild
                                  : one_piece && first % ild == 0 && size % ild == 0;
    if (!fits) return Code::kInvalidArgument;
    return all_free(first, size) ? Code::kOk : Code::kResourceExhausted;
  }
  uint32_t best = 0, best_length = 0;
  if (size > ild) {
    for (uint32_t begin = 0; size % ild == 0 && begin < cluster.agents.size() * 4; begin += ild) {
      if (begin >= ild && all_free(begin - ild, ild)) continue;  // not where its chain begins
      uint32_t length = 0;
      while (begin + length < cluster.agents.size() * 4 && all_free(begin + length, ild))
        length += ild;
      if (length < size || (best_length != 0 && length >= best_length)) continue;
      best = begin;
      best_length = length;
    }
  } else {
    for (const uint32_t begin : positions) {
      const uint32_t run = run_start(begin);
      if ((begin - run) % size != 0 || begin / ild != (begin + size - 1) / ild ||
          !all_free(begin, size))
        continue;
      uint32_t block = size;
      while (true) {
        const uint32_t larger = run + (begin - run) / (block * 2) * (block * 2);
        if (larger / ild != (larger + block * 2 - 1) / ild || !all_there(larger, block * 2) ||
            !all_free(larger, block * 2))
          break;
        block *= 2;
      }
      if (best_length != 0 && block >= best_length) continue;
      best = begin;
      best_length = block;
    }
  }
  if (best_length == 0) return Code::kResourceExhausted;
  first = best;
  return Code::kOk;
}

Code Model::Plan(Wanted& wanted, const std::string& replaced, uint32_t& first) const {
  const auto attempt = [&](const std::string& allocation) {
    const std::string cluster =
        allocations.contains(allocation) ? allocations.at(allocation).cluster : allocation;
    Wanted completed = wanted;
    Code code = Complete(clusters.at(cluster), completed);
    if (code == Code::kOk) code = Place(allocation, completed, replaced, first);
    if (code == Code::kOk) {
      completed.allocation = allocation;
      completed.cluster = cluster;
      wanted = completed;
    }
    return code;
  };
  const std::vector<std::string> visible = Allocations();
  if (!wanted.allocation.empty()) {
    if (std::count(visible.begin(), visible.end(), wanted.allocation) == 0) return Code::kNotFound;
    const std::string cluster = allocations.contains(wanted.allocation)
                                    ? allocations.at(wanted.allocation).cluster
                                    : wanted.allocation;
    if (!wanted.cluster.empty() && wanted.cluster != cluster && wanted.cluster != wanted.allocation)
      return Code::kInvalidArgument;
    return attempt(wanted.allocation);
  }
  if (!wanted.cluster.empty() && !clusters.contains(wanted.cluster)) return Code::kNotFound;
  Code refusal = Code::kFailedPrecondition;
  for (const std::string& allocation : visible) {
    const std::string cluster =
        allocations.contains(allocation) ? allocations.at(allocation).cluster : allocation;
    if (!wanted.cluster.empty() && wanted.cluster != cluster) continue;
    const Code code = attempt(allocation);
    if (code == Code::kOk) return code;
    if (refusal != Code::kInvalidArgument) refusal = code;
  }
  return refusal;
}

Code Model::CreatePartition(Wanted wanted) {
  if (partitions.contains(wanted.id)) {
    const bool again =
        !wanted.request_id.empty() && partitions[wanted.id].wanted.request_id == wanted.request_id;
    return again ? Code::kOk : Code::kAlreadyExists;
  }
  uint32_t first = 0;
  const Code code = Plan(wanted, "", first);
  if (code != Code::kOk) return code;
  partitions[wanted.id] = {
      .wanted = wanted, .first = first, .generation = ++generation, .pending_since = now};
  return code;
}

Code Model::UpdatePartition(Wanted wanted) {
  if (!partitions.contains(wanted.id)) return Code::kNotFound;
  Partition& partition = partitions[wanted.id];
  const Wanted& before = partition.wanted;
  if (wanted.size == 0) wanted.size = before.size;
  if (!wanted.reconfigurable.has_value()) wanted.reconfigurable = before.reconfigurable;
  if (!wanted.relocatable.has_value()) wanted.relocatable = before.relocatable;
  if (!wanted.no_auto_reset.has_value()) wanted.no_auto_reset = before.no_auto_reset;
  if (wanted.allocation.empty() && wanted.cluster.empty()) wanted.allocation = before.allocation;
  wanted.request_id = before.request_id;
  uint32_t first = 0;
  const Code code = Plan(wanted, wanted.id, first);
  if (code != Code::kOk) return code;
  partition.wanted = wanted;
  partition.first = first;
  partition.generation = ++generation;
  SetPending(partition);
  return code;
}

Code Model::ResetPartition(const std::string& id) {
  if (!partitions.contains(id)) return Code::kNotFound;
  partitions[id].generation = ++generation;
  SetPending(partitions[id]);
  return Code::kOk;
}

Code Model::RemovePartition(const std::string& id) {
  return partitions.erase(id) == 1 ? Code::kOk : Code::kNotFound;
}

// --- The world ---

void Model::SetPending(Partition& partition) {
  partition.state = kPending;
  partition.cause = kNone;
  partition.pending_since = now;
}

bool Model::Lost(const Partition& partition) const {
  for (const std::string& agent : AgentsOf(partition)) {
    const std::string process = ProcessOf(agent);
    if (!process.empty() && !known.at(process).up) return true;
  }
  return false;
}

bool Model::Sick(const Partition& partition) const {
  const Cluster& cluster = clusters.at(partition.wanted.cluster);
  for (uint32_t i = partition.first; i < partition.first + partition.wanted.size; ++i) {
    const std::string& agent = cluster.agents[i / 4];
    const auto process = failed_.find(ProcessOf(agent));
    if (process == failed_.end()) continue;
    const auto mask = process->second.find(agents.at(agent));
    if (mask != process->second.end() && (mask->second >> (3 - i % 4) & 1) != 0) return true;
  }
  return false;
}

bool Model::Confirmed(const Partition& partition) const {
  for (const std::string& agent : AgentsOf(partition)) {
    const std::string process = ProcessOf(agent);
    if (process.empty() || !known.at(process).up) return false;
    const auto told = known.at(process).told.find(partition.wanted.id);
    if (told == known.at(process).told.end() || told->second != partition.generation) return false;
  }
  return true;
}

// What follows for every partition. `fresh`: the health of the machines was told just now.
void Model::Follow(bool fresh) {
  for (auto& [id, partition] : partitions) {
    const bool lost = Lost(partition), sick = Sick(partition), confirmed = Confirmed(partition);
    if (partition.state == kActive) {
      if (lost || sick) {
        partition.state = kError;
        partition.cause = lost ? kLost : kSick;
      } else if (!confirmed) {
        SetPending(partition);
      }
    } else if (partition.state == kPending) {
      if (confirmed && !sick) partition.state = kActive;
      if (confirmed && sick && fresh) {
        partition.state = kError;
        partition.cause = kSick;
      }
    } else if (!lost && !sick && !partition.wanted.no_auto_reset.value_or(false) &&
               partition.cause != kRefused && (partition.cause != kTimeout || confirmed)) {
      SetPending(partition);
      if (confirmed) partition.state = kActive;
    }
  }
}

void Model::Registered(const std::string& name, const ModelProcess& world) {
  for (auto& [other, process] : known) {
    for (const std::string& host : world.hosts) {
      if (other == name) continue;
      process.hosts.erase(host);
      if (failed_.contains(other)) failed_[other].erase(host);
    }
  }
  Known& process = known[name];
  if (process.boot != world.boot) {
    process = {};
    process.boot = world.boot;
    failed_.erase(name);
  }
  for (const std::string& host : process.hosts) {
    if (!world.hosts.contains(host) && failed_.contains(name)) failed_[name].erase(host);
  }
  process.hosts = world.hosts;
  process.up = true;
  process.seen = now;
  Follow(false);
}

void Model::Restarted() {
  known.clear();
  failed_.clear();
  started = now;
  for (auto& [id, partition] : partitions) SetPending(partition);
}

void Model::Heartbeats(const std::map<std::string, ModelProcess>& world) {
  for (const auto& [name, process] : world) {
    if (!process.alive) continue;
    if (!known.contains(name) || known[name].boot != process.boot) Registered(name, process);
    known[name].up = true;
    known[name].seen = now;
    failed_[name] = process.failed;
  }
  Follow(true);
}

bool Model::MustKnowAll(const std::string& name, const ModelProcess& world) const {
  return world.alive && !world.slow && known.contains(name) && MayBeTold(name);
}

// A controller that has just started tells a process of its partitions when all their machines are
// known.
bool Model::MayBeTold(const std::string& name) const {
  if (known.at(name).may_be_told || now - started > 5000) return true;
  for (const auto& [id, partition] : partitions) {
    bool here = false, complete = true;
    for (const std::string& agent : AgentsOf(partition)) {
      here = here || ProcessOf(agent) == name;
      complete = complete && !ProcessOf(agent).empty();
    }
    if (here && !complete) return false;
  }
  return true;
}

std::map<std::string, uint64_t> Model::PartitionsOf(const std::string& name) const {
  std::map<std::string, uint64_t> result;
  for (const auto& [id, partition] : partitions) {
    bool here = false, complete = true;
    for (const std::string& agent : AgentsOf(partition)) {
      here = here || ProcessOf(agent) == name;
      complete = complete && !ProcessOf(agent).empty();
    }
    if (here && complete && !(partition.state == kError && partition.cause == kRefused))
      result[id] = partition.generation;
  }
  return result;
}

void Model::Told(const std::map<std::string, ModelProcess>& world) {
  std::set<std::string> reached;
  for (const auto& [name, process] : world) {
    if (process.alive && known.contains(name)) known[name].may_be_told = MayBeTold(name);
    if (!MustKnowAll(name, process)) continue;
    reached.insert(name);
    for (const auto& [id, wanted] : PartitionsOf(name)) {
      // It does not refuse what it took before.
      const auto held = process.view.find(id);
      const bool has_it = held != process.view.end() && held->second == wanted;
      if (!process.rejects.contains(id) || has_it) continue;
      partitions[id].state = kError;
      partitions[id].cause = kRefused;
    }
  }
  // What one has refused, the others need not hold either.
  for (const std::string& name : reached) known[name].told = PartitionsOf(name);
  Follow(false);
}

void Model::Relocate(Partition& partition) {
  uint32_t first = 0;
  if (Place(partition.wanted.allocation, partition.wanted, partition.wanted.id, first) != Code::kOk)
    return;
  partition.first = first;
  partition.generation = ++generation;
  SetPending(partition);
}

void Model::Tick(const std::map<std::string, ModelProcess>&) {
  for (auto& [name, process] : known) process.up = process.up && now - process.seen <= 5000;
  Follow(false);
  for (auto& [id, partition] : partitions) {
    if (partition.state != kPending || now - partition.pending_since <= 300000) continue;
    partition.state = kError;
    partition.cause = kTimeout;
  }
  for (auto& [id, partition] : partitions) {
    if (partition.state == kError && partition.wanted.relocatable.value_or(false) &&
        !partition.wanted.index.has_value() &&
        (partition.cause == kLost || partition.cause == kSick))
      Relocate(partition);
  }
}

}  // namespace vpod::controller
