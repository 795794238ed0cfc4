// Questions that the model answers, and agents.
#include "server/controller/random_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/id_order.h"

namespace vpod::controller {
namespace {

using Code = absl::StatusCode;

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
  std::set<std::string, base::IdOrder> ids;
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

bool Model::AgentLost(const std::string& agent) const {
  const std::string process = ProcessOf(agent);
  return process.empty() ? missing_.contains(agent) : !known.at(process).up;
}

bool Model::Usable(const std::string& agent, uint32_t pcie_id) const {
  if (AgentLost(agent)) return false;
  const auto failed = failed_.find(ProcessOf(agent));
  if (failed == failed_.end()) return true;
  const auto mask = failed->second.find(agents.at(agent));
  return mask == failed->second.end() || (mask->second >> pcie_id & 1) == 0;
}

bool Model::HasGateway(const std::string& agent) const {
  const auto down = gateways_down_.find(ProcessOf(agent));
  return down == gateways_down_.end() || !down->second.contains(agents.at(agent));
}

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
  Reconfirm({host});
  awaited_.erase(id);  // it is none that was there before
  missing_.erase(id);
  Follow(false);
  return Code::kOk;
}

Code Model::RemoveAgent(const std::string& id) {
  if (!agents.contains(id)) return Code::kNotFound;
  if (!ClusterOf(id).empty()) return Code::kFailedPrecondition;
  agents.erase(id);
  awaited_.erase(id);
  missing_.erase(id);
  return Code::kOk;
}

void Model::DiscoverAgents(const std::map<std::string, std::string>& ids) {
  for (const auto& [host, id] : ids) agents[id] = host;
}

}  // namespace vpod::controller
