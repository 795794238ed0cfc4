// Clusters: agents in order, and how their IPUs are joined.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/status.h"
#include "server/controller/controller.h"

namespace vpod::controller {
namespace {

using arch::kIpusPerMachine;

std::string ObjectOf(const std::string& id) { return absl::StrCat("cluster ", id); }

// The cluster with every default filled in.
store::StoredCluster Complete(const vipuadmin::Cluster& cluster) {
  store::StoredCluster stored;
  stored.set_id(cluster.id());
  *stored.mutable_agent_ids() = cluster.agent_ids();
  stored.set_num_ipulinkdomains(std::max(1u, cluster.num_ipulinkdomains()));
  stored.set_topology(cluster.topology().empty() ? "mesh" : cluster.topology());
  stored.set_cluster_topology(!cluster.cluster_topology().empty() ? cluster.cluster_topology()
                              : stored.num_ipulinkdomains() > 1   ? "mesh"
                                                                  : "none");
  return stored;
}

absl::Status CheckShape(const store::StoredCluster& cluster) {
  const auto agents = static_cast<uint32_t>(cluster.agent_ids_size());
  const uint32_t ilds = cluster.num_ipulinkdomains();
  const auto invalid = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (agents == 0) return invalid("A cluster needs at least one agent.");
  if (agents % ilds != 0) {
    return invalid("Number of IPU-Link domains (", ilds, ") must divide the number of agents (",
                   agents, ").");
  }
  if (agents / ilds * kIpusPerMachine > arch::kMaxIpusPerLinkDomain) {
    return invalid("An IPU-Link domain has at most 16 agents; ", agents / ilds,
                   " given (try --num-ipulinkdomains ", (agents + 15) / 16, ").");
  }
  const std::string& topology = cluster.topology();
  if (topology != "mesh" && topology != "torus")
    return invalid("Unknown topology '", topology, "'; use mesh or torus.");
  const std::string& gateways = cluster.cluster_topology();
  if (gateways != "none" && gateways != "mesh" && gateways != "looped" && gateways != "switched")
    return invalid("Unknown cluster topology '", gateways,
                   "'; use none, mesh, looped or switched.");
  if (gateways != "none" && ilds == 1) {
    return invalid("Cluster topology '", gateways,
                   "' joins IPU-Link domains; give --num-ipulinkdomains of 2 or more.");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Controller::CheckMembers(
    const google::protobuf::RepeatedPtrField<std::string>& agent_ids, const Cluster* cluster) {
  std::set<absl::string_view> seen;
  for (const std::string& id : agent_ids) {
    VPOD_ASSIGN_OR_RETURN(const Agent* agent, FindAgent(id));
    if (!seen.insert(id).second)
      return absl::InvalidArgumentError(absl::StrCat("Agent ", id, " is named twice."));
    if (agent->cluster != nullptr && agent->cluster != cluster) {
      return absl::AlreadyExistsError(
          absl::StrCat("Agent ", id, " is already in cluster ", agent->cluster->id(), "."));
    }
  }
  return absl::OkStatus();
}

absl::Status Controller::CreateCluster(const vipuadmin::Cluster& cluster, const std::string& user) {
  VPOD_RETURN_IF_ERROR(CheckId(cluster.id()));
  store::StoredCluster stored = Complete(cluster);
  VPOD_RETURN_IF_ERROR(CheckShape(stored));
  base::MutexLock lock(mutex_);
  if (state_.FindCluster(stored.id()) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat("Cluster ", stored.id(), " already exists."));
  // Its default allocation has its id.
  if (state_.allocations.contains(stored.id()))
    return absl::AlreadyExistsError(absl::StrCat("Allocation ", stored.id(), " already exists."));
  VPOD_RETURN_IF_ERROR(CheckMembers(stored.agent_ids(), nullptr));
  VPOD_RETURN_IF_ERROR(
      Commit({{"cluster", stored.id(), stored.SerializeAsString()}}, ObjectOf(stored.id()), user,
             absl::StrCat("created with ",
                          base::Counted(static_cast<uint64_t>(stored.agent_ids_size()), "agent"),
                          " in ", base::Counted(stored.num_ipulinkdomains(), "ILD"), ", ",
                          stored.topology(), ", ", stored.cluster_topology())));
  state_.AddCluster(std::move(stored));
  return absl::OkStatus();
}

absl::Status Controller::CheckPartitionsStay(const Cluster& cluster,
                                             const store::StoredCluster& next) {
  const uint32_t before = cluster.ipus_per_ild();
  const uint32_t after =
      static_cast<uint32_t>(next.agent_ids_size()) / next.num_ipulinkdomains() * kIpusPerMachine;
  for (const auto& [first, partition] : cluster.partitions) {
    const uint32_t last = first + partition->size() - 1;
    bool stays = first / before == first / after && last / before == last / after &&
                 (partition->size() % before == 0) == (partition->size() % after == 0);
    for (uint32_t p = first / kIpusPerMachine; stays && p <= last / kIpusPerMachine; ++p) {
      stays = p < static_cast<uint32_t>(next.agent_ids_size()) &&
              next.agent_ids(static_cast<int>(p)) == cluster.agents[p]->stored.id();
    }
    if (!stays) {
      return absl::FailedPreconditionError(
          absl::StrCat("Cluster ", cluster.id(), " is in use by partition ", partition->id(),
                       ", whose agents must keep their places in their IPU-Link domains."));
    }
  }
  return absl::OkStatus();
}

absl::Status Controller::UpdateCluster(const vipuadmin::UpdateClusterRequest& request,
                                       const std::string& user) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(Cluster * cluster, FindCluster(request.id()));
  store::StoredCluster next = cluster->stored;
  *next.mutable_agent_ids() = request.agent_ids();
  VPOD_RETURN_IF_ERROR(CheckShape(next));
  VPOD_RETURN_IF_ERROR(CheckMembers(next.agent_ids(), cluster));
  const std::set<std::string> kept(next.agent_ids().begin(), next.agent_ids().end());
  for (const auto& [id, allocation] : cluster->allocations) {
    if (allocation->is_default) continue;
    for (const uint32_t position : allocation->positions) {
      const std::string& agent = cluster->agents[position]->stored.id();
      if (kept.contains(agent)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("Agent ", agent, " is in use by allocation ", id, "."));
    }
  }
  VPOD_RETURN_IF_ERROR(CheckPartitionsStay(*cluster, next));
  VPOD_RETURN_IF_ERROR(
      Commit({{"cluster", next.id(), next.SerializeAsString()}}, ObjectOf(next.id()), user,
             absl::StrCat("updated to ",
                          base::Counted(static_cast<uint64_t>(next.agent_ids_size()), "agent"))));
  state_.SetClusterAgents(*cluster, std::move(next));
  return absl::OkStatus();
}

absl::Status Controller::ResetCluster(const std::string& id, const std::string& user) {
  std::vector<MachineAddress> machines;
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(const Cluster* cluster, FindCluster(id));
    if (!cluster->partitions.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("Cluster ", id, " is in use by partition ",
                                                        cluster->partitions.begin()->second->id(),
                                                        "; remove it first."));
    }
    for (const Agent* agent : cluster->agents) {
      VPOD_ASSIGN_OR_RETURN(machines.emplace_back(), AddressOf(*agent));
    }
  }
  VPOD_RETURN_IF_ERROR(ResetMachines(machines));
  base::MutexLock lock(mutex_);
  return Commit({}, ObjectOf(id), user, "reset: all links retrained");
}

absl::Status Controller::RemoveCluster(const std::string& id, const std::string& user) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(Cluster * cluster, FindCluster(id));
  std::string first_user;
  for (const auto& [first, partition] : cluster->partitions) {
    if (first_user.empty() || partition->id() < first_user) first_user = partition->id();
  }
  if (!first_user.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Cluster ", id, " is in use by partition ", first_user, "."));
  }
  for (const auto& [allocation_id, allocation] : cluster->allocations) {
    if (allocation->is_default) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("Cluster ", id, " is in use by allocation ", allocation_id, "."));
  }
  // With it goes its default allocation, which somebody may have been limited to.
  VPOD_RETURN_IF_ERROR(users_->SetUsersOf(id, {}, [&](std::vector<Change> changes) {
    changes.push_back({"cluster", id, std::nullopt});
    return Commit(changes, ObjectOf(id), user, "removed");
  }));
  state_.RemoveCluster(*cluster);
  return absl::OkStatus();
}

vipuadmin::Cluster Controller::DescribeCluster(const Cluster& cluster) {
  vipuadmin::Cluster description;
  description.set_id(cluster.id());
  *description.mutable_agent_ids() = cluster.stored.agent_ids();
  description.set_num_ipulinkdomains(cluster.stored.num_ipulinkdomains());
  description.set_topology(cluster.stored.topology());
  description.set_cluster_topology(cluster.stored.cluster_topology());
  const auto ipus = static_cast<uint32_t>(cluster.agents.size()) * kIpusPerMachine;
  description.set_num_ipus(ipus);
  description.set_free_ipus(ipus - cluster.used_ipus);
  description.set_num_partitions(static_cast<uint32_t>(cluster.partitions.size()));
  for (const auto& [id, allocation] : cluster.allocations) {
    if (allocation->visible()) description.add_allocation_ids(id);
  }
  for (const auto& [name, row] : cluster.last_tests) *description.add_last_tests() = row;
  return description;
}

std::vector<vipuadmin::Cluster> Controller::ListClusters() {
  base::MutexLock lock(mutex_);
  std::vector<vipuadmin::Cluster> result;
  for (const auto& [id, cluster] : state_.clusters) result.push_back(DescribeCluster(*cluster));
  return result;
}

absl::StatusOr<vipuadmin::GetClusterReply> Controller::GetCluster(const std::string& id) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Cluster* cluster, FindCluster(id));
  vipuadmin::GetClusterReply reply;
  *reply.mutable_cluster() = DescribeCluster(*cluster);
  for (const Agent* agent : cluster->agents) *reply.add_agents() = DescribeAgent(*agent);
  return reply;
}

}  // namespace vpod::controller
