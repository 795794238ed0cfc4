// The model's clusters and allocations.
#include "server/controller/random_model.h"

namespace vpod::controller {
namespace {

using Code = absl::StatusCode;

}  // namespace

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

}  // namespace vpod::controller
