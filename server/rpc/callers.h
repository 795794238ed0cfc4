// Callers of the controller's services, and their rights to partitions.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/controller/permissions.h"
#include "server/controller/users.h"

namespace vpod::rpc {

// Thread-safe.
class Callers {
 public:
  // When `secure`, calls come through a CallGuard, which has seen the users' keys; else everyone is
  // who they say and may do everything.
  Callers(controller::Users& users, bool secure) : users_(users), secure_(secure) {}

  bool secure() const { return secure_; }
  absl::StatusOr<controller::Caller> Of(const grpc::ServerContext& context);
  // Whether the caller may make the call `method` (full name) for the partition.
  absl::Status Check(absl::string_view method, const controller::Caller& caller,
                     const controller::PartitionAccess& partition) const;
  // Whether the caller may see the partition's fabric key.
  bool MayUseDevices(const controller::Caller& caller,
                     const controller::PartitionAccess& partition) const {
    return !secure_ || controller::MayUseDevices(caller, partition);
  }

 private:
  controller::Users& users_;
  const bool secure_;
};

}  // namespace vpod::rpc
