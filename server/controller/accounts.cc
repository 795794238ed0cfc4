// Users as administrators see them: what they have to do with allocations and partitions.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "server/controller/controller.h"
#include "server/controller/rights.h"

namespace vpod::controller {
namespace {

std::string ObjectOf(const std::string& id) { return absl::StrCat("user ", id); }

std::string RightsText(const vipuadmin::Names& allocations) {
  if (allocations.names().empty()) return "for no allocation";
  return absl::StrCat("for allocations ", absl::StrJoin(allocations.names(), " "));
}

}  // namespace

absl::Status Controller::CheckAllocationsExist(const vipuadmin::Names& ids) {
  for (const std::string& id : ids.names()) VPOD_RETURN_IF_ERROR(FindAllocation(id).status());
  return absl::OkStatus();
}

std::multimap<std::string, std::string> Controller::PartitionsByUser() {
  std::multimap<std::string, std::string> result;
  for (const auto& [id, partition] : state_.partitions)
    result.emplace(partition->stored.created_by(), id);
  return result;
}

absl::StatusOr<std::string> Controller::CreateUser(const vipuadmin::User& user,
                                                   const std::string& by,
                                                   const CallerCheck& check) {
  VPOD_RETURN_IF_ERROR(CheckId(user.id()));
  VPOD_ASSIGN_OR_RETURN(const IssuedKey key, users_->IssueKey());
  base::MutexLock lock(mutex_);
  if (check) VPOD_RETURN_IF_ERROR(check());
  VPOD_RETURN_IF_ERROR(CheckAllocationsExist(user.allocation_ids()));
  const std::string text = absl::StrCat(
      user.admin() ? "created as administrator " : "created ",
      user.has_allocation_ids() ? RightsText(user.allocation_ids()) : "for all allocations");
  VPOD_RETURN_IF_ERROR(users_->Create(user, key.kept, [&](const std::vector<Change>& changes) {
    return Commit(changes, ObjectOf(user.id()), by, text);
  }));
  return key.key;
}

std::vector<vipuadmin::User> Controller::ListUsers() {
  base::MutexLock lock(mutex_);
  const auto partitions = PartitionsByUser();
  std::vector<vipuadmin::User> users = users_->List();
  for (vipuadmin::User& user : users)
    user.set_num_partitions(static_cast<uint32_t>(partitions.count(user.id())));
  return users;
}

absl::StatusOr<vipuadmin::User> Controller::GetUser(const std::string& id) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(vipuadmin::User user, users_->Get(id));
  user.set_num_partitions(static_cast<uint32_t>(PartitionsByUser().count(id)));
  return user;
}

absl::StatusOr<std::string> Controller::UpdateUser(const vipuadmin::UpdateUserRequest& request,
                                                   const std::string& by,
                                                   const CallerCheck& check) {
  std::optional<IssuedKey> key;
  std::vector<std::string> done;
  if (request.new_access_key()) {
    VPOD_ASSIGN_OR_RETURN(key, users_->IssueKey());
    done.push_back("new access key");
  }
  if (request.all_allocations()) done.push_back("for all allocations");
  if (request.has_allocation_ids()) done.push_back(RightsText(request.allocation_ids()));
  RightsChange change{.subject = absl::StrCat("User ", request.id()),
                      .object = ObjectOf(request.id()),
                      .by = by,
                      .text = absl::StrCat("updated: ", absl::StrJoin(done, ", ")),
                      .jobs = request.jobs()};
  {
    base::MutexLock lock(mutex_);
    if (check) VPOD_RETURN_IF_ERROR(check());
    VPOD_RETURN_IF_ERROR(users_->Get(request.id()).status());
    VPOD_RETURN_IF_ERROR(CheckAllocationsExist(request.allocation_ids()));
    VPOD_ASSIGN_OR_RETURN(const Caller before, users_->Find(request.id()));
    Caller after = before;
    const auto& names = request.allocation_ids().names();
    if (request.has_allocation_ids()) after.allocation_ids.emplace(names.begin(), names.end());
    if (request.all_allocations()) after.allocation_ids.reset();
    AddLosses(before, &after, key.has_value(), change);
    VPOD_RETURN_IF_ERROR(CheckDecided(change));
    VPOD_RETURN_IF_ERROR(users_->Update(
        request, key.has_value() ? &key->kept : nullptr,
        [&](const std::vector<Change>& changes) { return CommitRights(changes, change); }));
  }
  Reconcile();
  return key.has_value() ? key->key : "";
}

absl::Status Controller::RemoveUser(const std::string& id, const std::string& by,
                                    vipuadmin::JobsOfUser jobs, const CallerCheck& check) {
  RightsChange change{.subject = absl::StrCat("User ", id),
                      .object = ObjectOf(id),
                      .by = by,
                      .text = "removed",
                      .jobs = jobs};
  {
    base::MutexLock lock(mutex_);
    if (check) VPOD_RETURN_IF_ERROR(check());
    VPOD_RETURN_IF_ERROR(users_->Get(id).status());
    VPOD_ASSIGN_OR_RETURN(const Caller before, users_->Find(id));
    AddLosses(before, nullptr, false, change);
    VPOD_RETURN_IF_ERROR(CheckDecided(change));
    VPOD_RETURN_IF_ERROR(users_->Remove(
        id, [&](const std::vector<Change>& changes) { return CommitRights(changes, change); }));
  }
  Reconcile();
  return absl::OkStatus();
}

}  // namespace vpod::controller
