#include "server/rpc/callers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/connection_failure.h"
#include "device/base/status.h"
#include "server/rpc/metadata.h"

namespace vpod::rpc {

absl::StatusOr<PresentCaller> Callers::Of(const grpc::ServerContext& context) {
  VPOD_ASSIGN_OR_RETURN(const std::string id, OnlyValue(context.client_metadata(), kUserIdHeader));
  // Anybody may give any name then, so that none has calls of its own.
  if (!secure_) return PresentCaller{{.user_id = id, .admin = true}, nullptr};
  VPOD_ASSIGN_OR_RETURN(const std::string key,
                        OnlyValue(context.client_metadata(), kAccessKeyHeader));
  // The guard has authenticated it.
  VPOD_ASSIGN_OR_RETURN(controller::Caller caller, users_.Recognize(id, key));
  return Begin(std::move(caller));
}

absl::StatusOr<PresentCaller> Callers::Begin(controller::Caller caller) {
  const std::string id = caller.user_id;
  base::MutexLock lock(mutex_);
  int& calls = calls_[id];
  if (calls >= kMostCallsOfUser) return absl::ResourceExhaustedError(base::kBusy);
  ++calls;
  std::shared_ptr<const void> place(this, [this, id](const void*) {
    base::MutexLock lock(mutex_);
    const auto it = calls_.find(id);
    if (--it->second == 0) calls_.erase(it);
  });
  return PresentCaller{std::move(caller), std::move(place)};
}

absl::StatusOr<PresentCaller> Callers::Administrator(const grpc::ServerContext& context,
                                                     absl::string_view method) {
  VPOD_ASSIGN_OR_RETURN(PresentCaller caller, Of(context));
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
