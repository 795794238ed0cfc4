// Allocations: agents of one cluster, made visible to users. An agent is in one allocation: in one
// that was created, or else in its cluster's default allocation, which has the cluster's id, is
// hidden while empty, and comes and goes with the cluster.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/status.h"
#include "server/controller/controller.h"
#include "server/controller/rights.h"

namespace vpod::controller {
namespace {

using Ids = google::protobuf::RepeatedPtrField<std::string>;

std::string UsersText(const Ids& users) {
  return users.empty() ? "no users" : absl::StrCat("users ", absl::StrJoin(users, " "));
}

absl::Status DefaultFollows(const Allocation& allocation) {
  return absl::FailedPreconditionError(
      absl::StrCat("Allocation ", allocation.id,
                   " is the default allocation of its cluster: it has "
                   "the agents that are in no other, and goes with the cluster."));
}

}  // namespace

absl::Status Controller::CheckAllocationMembers(const Cluster& cluster,
                                                const Allocation* allocation,
                                                store::StoredAllocation& next) {
  if (next.agent_ids().empty())
    return absl::InvalidArgumentError("An allocation needs at least one agent.");
  std::set<uint32_t> positions;
  for (const std::string& id : next.agent_ids()) {
    VPOD_ASSIGN_OR_RETURN(const Agent* agent, FindAgent(id));
    if (agent->cluster != &cluster) {
      return absl::InvalidArgumentError(
          absl::StrCat("Agent ", id, " is not in cluster ", cluster.id(), "."));
    }
    if (!positions.insert(agent->position).second)
      return absl::InvalidArgumentError(absl::StrCat("Agent ", id, " is named twice."));
    if (agent->allocation == allocation) continue;
    if (!agent->allocation->is_default) {
      return absl::AlreadyExistsError(
          absl::StrCat("Agent ", id, " is already in allocation ", agent->allocation->id, "."));
    }
    for (const Partition* partition : state_.PartitionsAt(cluster, agent->position)) {
      return absl::FailedPreconditionError(
          absl::StrCat("Agent ", id, " is in use by partition ", partition->id(), "."));
    }
  }
  if (allocation != nullptr) {
    for (const uint32_t position : allocation->positions) {
      if (positions.contains(position)) continue;
      for (const Partition* partition : state_.PartitionsAt(cluster, position)) {
        return absl::FailedPreconditionError(
            absl::StrCat("Agent ", cluster.agents[position]->stored.id(),
                         " is in use by partition ", partition->id(), "."));
      }
    }
  }
  next.clear_agent_ids();
  for (const uint32_t position : positions)
    next.add_agent_ids(cluster.agents[position]->stored.id());
  return absl::OkStatus();
}

absl::Status Controller::CommitAllocation(std::vector<Change> changes, const std::string& id,
                                          const Ids* users, RightsChange change) {
  change.subject = absl::StrCat("Allocation ", id);
  change.object = absl::StrCat("allocation ", id);
  if (users == nullptr) return Commit(changes, change.object, change.by, change.text);
  const std::set<std::string> named(users->begin(), users->end());
  for (const std::string& each : users_->UsersOf(id)) {
    if (named.contains(each)) continue;
    VPOD_ASSIGN_OR_RETURN(const Caller before, users_->Find(each));
    Caller after = before;
    if (after.allocation_ids.has_value()) after.allocation_ids->erase(id);
    AddLosses(before, &after, false, change);
  }
  VPOD_RETURN_IF_ERROR(CheckDecided(change));
  return users_->SetUsersOf(id, {users->begin(), users->end()}, [&](std::vector<Change> rights) {
    std::move(rights.begin(), rights.end(), std::back_inserter(changes));
    return CommitRights(changes, change);
  });
}

absl::Status Controller::CreateAllocation(const vipuadmin::Allocation& allocation,
                                          const std::string& user, const CallerCheck& check) {
  VPOD_RETURN_IF_ERROR(CheckId(allocation.id()));
  base::MutexLock lock(mutex_);
  if (check) VPOD_RETURN_IF_ERROR(check());
  if (state_.allocations.contains(allocation.id())) {
    return absl::AlreadyExistsError(
        absl::StrCat("Allocation ", allocation.id(), " already exists."));
  }
  VPOD_ASSIGN_OR_RETURN(const Cluster* cluster, FindCluster(allocation.cluster_id()));
  store::StoredAllocation stored;
  stored.set_id(allocation.id());
  stored.set_cluster_id(cluster->id());
  *stored.mutable_agent_ids() = allocation.agent_ids();
  VPOD_RETURN_IF_ERROR(CheckAllocationMembers(*cluster, nullptr, stored));
  VPOD_RETURN_IF_ERROR(CommitAllocation(
      {{"allocation", stored.id(), stored.SerializeAsString()}}, stored.id(),
      &allocation.user_ids(),
      {.by = user,
       .text = absl::StrCat(
           "created with ", base::Counted(static_cast<uint64_t>(stored.agent_ids_size()), "agent"),
           " of cluster ", stored.cluster_id(),
           allocation.user_ids().empty() ? "" : ", " + UsersText(allocation.user_ids()))}));
  state_.AddAllocation(stored);
  return absl::OkStatus();
}

absl::Status Controller::UpdateAllocation(const vipuadmin::UpdateAllocationRequest& request,
                                          const std::string& user, const CallerCheck& check) {
  VPOD_RETURN_IF_ERROR(ChangeAllocation(request, user, check));
  Reconcile();  // users who were left out may have kept fabric keys
  return absl::OkStatus();
}

absl::Status Controller::ChangeAllocation(const vipuadmin::UpdateAllocationRequest& request,
                                          const std::string& user, const CallerCheck& check) {
  base::MutexLock lock(mutex_);
  if (check) VPOD_RETURN_IF_ERROR(check());
  VPOD_ASSIGN_OR_RETURN(Allocation * allocation, FindAllocation(request.id()));
  const Ids* users = request.has_user_ids() ? &request.user_ids().names() : nullptr;
  if (!request.has_agent_ids()) {
    if (users == nullptr) return absl::OkStatus();
    return CommitAllocation({}, request.id(), users,
                            {.by = user,
                             .text = absl::StrCat("updated to ", UsersText(*users)),
                             .jobs = request.jobs()});
  }
  if (allocation->is_default) return DefaultFollows(*allocation);
  store::StoredAllocation next;
  next.set_id(allocation->id);
  next.set_cluster_id(allocation->cluster->id());
  *next.mutable_agent_ids() = request.agent_ids().names();
  VPOD_RETURN_IF_ERROR(CheckAllocationMembers(*allocation->cluster, allocation, next));
  VPOD_RETURN_IF_ERROR(CommitAllocation(
      {{"allocation", next.id(), next.SerializeAsString()}}, next.id(), users,
      {.by = user,
       .text = absl::StrCat("updated to ",
                            base::Counted(static_cast<uint64_t>(next.agent_ids_size()), "agent"),
                            users == nullptr ? "" : ", " + UsersText(*users)),
       .jobs = request.jobs()}));
  state_.SetAllocationAgents(*allocation, next);
  return absl::OkStatus();
}

absl::Status Controller::RemoveAllocation(const std::string& id, const std::string& user,
                                          const CallerCheck& check) {
  base::MutexLock lock(mutex_);
  if (check) VPOD_RETURN_IF_ERROR(check());
  VPOD_ASSIGN_OR_RETURN(Allocation * allocation, FindAllocation(id));
  if (allocation->is_default) return DefaultFollows(*allocation);
  for (const auto& [first, partition] : allocation->cluster->partitions) {
    if (partition->allocation != allocation) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("Allocation ", id, " is in use by partition ", partition->id(), "."));
  }
  const Ids nobody;
  VPOD_RETURN_IF_ERROR(CommitAllocation({{"allocation", id, std::nullopt}}, id, &nobody,
                                        {.by = user, .text = "removed"}));
  state_.RemoveAllocation(*allocation);
  return absl::OkStatus();
}

vipuadmin::Allocation Controller::DescribeAllocation(const Allocation& allocation) {
  vipuadmin::Allocation description;
  description.set_id(allocation.id);
  description.set_cluster_id(allocation.cluster->id());
  for (const uint32_t position : allocation.positions)
    description.add_agent_ids(allocation.cluster->agents[position]->stored.id());
  for (std::string& id : users_->UsersOf(allocation.id)) description.add_user_ids(std::move(id));
  description.set_num_partitions(allocation.num_partitions);
  return description;
}

std::vector<vipuadmin::Allocation> Controller::ListAllocations() {
  base::MutexLock lock(mutex_);
  std::vector<vipuadmin::Allocation> result;
  for (const auto& [id, allocation] : state_.allocations) {
    if (allocation->visible()) result.push_back(DescribeAllocation(*allocation));
  }
  return result;
}

absl::StatusOr<vipuadmin::Allocation> Controller::GetAllocation(const std::string& id) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Allocation* allocation, FindAllocation(id));
  return DescribeAllocation(*allocation);
}

}  // namespace vpod::controller
