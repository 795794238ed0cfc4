#include "server/rpc/callers.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "server/rpc/metadata.h"

namespace vpod::rpc {

absl::StatusOr<controller::Caller> Callers::Of(const grpc::ServerContext& context) {
  VPOD_ASSIGN_OR_RETURN(const std::string id, OnlyValue(context.client_metadata(), kUserIdHeader));
  if (!secure_) return controller::Caller{.user_id = id, .admin = true};
  VPOD_ASSIGN_OR_RETURN(const std::string key,
                        OnlyValue(context.client_metadata(), kAccessKeyHeader));
  return users_.Recognize(id, key);  // the guard has authenticated it
}

absl::StatusOr<controller::Caller> Callers::Administrator(const grpc::ServerContext& context,
                                                          absl::string_view method) {
  VPOD_ASSIGN_OR_RETURN(controller::Caller caller, Of(context));
  VPOD_ASSIGN_OR_RETURN(const controller::Permission permission, controller::PermissionOf(method));
  VPOD_RETURN_IF_ERROR(controller::CheckCaller(permission, caller));
  return caller;
}

absl::Status Callers::CheckCurrent(const controller::Caller& caller) const {
  if (!secure_) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const controller::Caller now, users_.Find(caller.user_id));
  if (now == caller) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("The access key or the rights of user ", caller.user_id,
                                         " have just changed; try again."));
}

absl::Status Callers::Check(absl::string_view method, const controller::Caller& caller,
                            const controller::PartitionAccess& partition) const {
  VPOD_RETURN_IF_ERROR(CheckCurrent(caller));
  return CheckPartition(method, caller, partition);
}

absl::Status Callers::CheckPartition(absl::string_view method, const controller::Caller& caller,
                                     const controller::PartitionAccess& partition) const {
  if (!secure_) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const controller::Permission permission, controller::PermissionOf(method));
  return controller::CheckPartition(permission, caller, partition);
}

}  // namespace vpod::rpc
