#include "server/rpc/user_administration.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/base/status.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

absl::Status UserAdministration::CheckAllocations(const vipuadmin::Names& ids) {
  std::set<std::string> known;
  for (const auto& allocation : controller_.ListAllocations()) known.insert(allocation.id());
  for (const std::string& id : ids.names()) {
    if (!known.contains(id))
      return absl::NotFoundError(absl::StrCat("Allocation ", id, " does not exist."));
  }
  return absl::OkStatus();
}

std::multimap<std::string, std::string> UserAdministration::PartitionsByUser() {
  std::multimap<std::string, std::string> result;
  for (const auto& partition : controller_.ListPartitions())
    result.emplace(partition.status().created_by(), partition.requirements().id());
  return result;
}

Status UserAdministration::CreateUser(ServerContext*, const vipuadmin::CreateUserRequest* request,
                                      vipuadmin::CreateUserReply* reply) {
  const vipuadmin::User& user = request->user();
  absl::Status good = controller::CheckId(user.id());
  if (good.ok()) good = CheckAllocations(user.allocation_ids());
  if (!good.ok()) return ToGrpc(good);
  return Answer(callers_.users().Create(user),
                [&](std::string key) { reply->set_access_key(std::move(key)); });
}

Status UserAdministration::ListUsers(ServerContext*, const vipuadmin::ListUsersRequest*,
                                     vipuadmin::ListUsersReply* reply) {
  const auto partitions = PartitionsByUser();
  for (vipuadmin::User& user : callers_.users().List()) {
    user.set_num_partitions(static_cast<uint32_t>(partitions.count(user.id())));
    *reply->add_users() = std::move(user);
  }
  return Status::OK;
}

Status UserAdministration::GetUser(ServerContext*, const vipuadmin::GetUserRequest* request,
                                   vipuadmin::GetUserReply* reply) {
  return Answer(callers_.users().Get(request->id()), [&](vipuadmin::User user) {
    user.set_num_partitions(static_cast<uint32_t>(PartitionsByUser().count(user.id())));
    *reply->mutable_user() = std::move(user);
  });
}

Status UserAdministration::UpdateUser(ServerContext*, const vipuadmin::UpdateUserRequest* request,
                                      vipuadmin::UpdateUserReply* reply) {
  const absl::Status good = CheckAllocations(request->allocation_ids());
  if (!good.ok()) return ToGrpc(good);
  return Answer(callers_.users().Update(*request),
                [&](std::string key) { reply->set_access_key(std::move(key)); });
}

Status UserAdministration::RemoveUser(ServerContext*, const vipuadmin::RemoveUserRequest* request,
                                      vipuadmin::RemoveUserReply*) {
  const auto partitions = PartitionsByUser();
  const auto one = partitions.find(request->id());
  if (one != partitions.end()) {
    return ToGrpc(absl::FailedPreconditionError(
        absl::StrCat("User ", request->id(), " is in use by partition ", one->second, ".")));
  }
  return ToGrpc(callers_.users().Remove(request->id()));
}

}  // namespace vpod::rpc
