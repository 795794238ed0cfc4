#include "server/rpc/callers.h"

#include "device/base/status.h"
#include "server/rpc/metadata.h"

namespace vpod::rpc {

absl::StatusOr<controller::Caller> Callers::Of(const grpc::ServerContext& context) {
  VPOD_ASSIGN_OR_RETURN(const std::string id, OnlyValue(context.client_metadata(), kUserIdHeader));
  if (secure_) return users_.Find(id);
  return controller::Caller{.user_id = id, .admin = true};
}

absl::Status Callers::Check(absl::string_view method, const controller::Caller& caller,
                            const controller::PartitionAccess& partition) const {
  if (!secure_) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const controller::Permission permission, controller::PermissionOf(method));
  return controller::CheckPartition(permission, caller, partition);
}

}  // namespace vpod::rpc
