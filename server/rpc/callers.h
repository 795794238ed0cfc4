// Callers of the controller's services, and their rights to partitions.
#pragma once

#include <grpcpp/server_context.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/mutex.h"
#include "server/controller/permissions.h"
#include "server/controller/users.h"

namespace vpod::rpc {

// The caller of a call that is under way. The call counts for its user as long as this lives.
struct PresentCaller : controller::Caller {
  std::shared_ptr<const void> place;
};

// Thread-safe. A client may send the headers of a call today and its message tomorrow, when its
// user has lost rights. So the guard's verdict on the headers is not the last: Of, Administrator
// and the checks look at users as they are.
class Callers {
 public:
  // So many calls of one user are under way at most: a quarter of the threads
  // (server/end_points.cc), so that a user who makes more and more calls keeps threads from nobody.
  static constexpr int kMostCallsOfUser = 64;

  // When `secure`, calls come through a CallGuard; else everyone is who they say and may do
  // everything.
  Callers(controller::Users& users, bool secure) : users_(users), secure_(secure) {}

  bool secure() const { return secure_; }
  // Unauthenticated when the key of the call is not the user's any more; see Begin.
  absl::StatusOr<PresentCaller> Of(const grpc::ServerContext& context);
  // The caller of `method` (full name), which is for administrators.
  absl::StatusOr<PresentCaller> Administrator(const grpc::ServerContext& context,
                                              absl::string_view method);
  // Counts a call of the user. ResourceExhausted with the words base::kBusy when kMostCallsOfUser
  // are under way.
  absl::StatusOr<PresentCaller> Begin(controller::Caller caller);
  // Aborted when the user's access key or rights are not those of `caller` any more, and
  // Unauthenticated when the user was removed. To be asked while they cannot change: under the
  // controller's lock.
  absl::Status CheckCurrent(const controller::Caller& caller) const;
  // The same, and whether the caller may make the call `method` (full name) for the partition.
  absl::Status Check(absl::string_view method, const controller::Caller& caller,
                     const controller::PartitionAccess& partition) const;
  // The two that follow go by the rights of `caller`; whether these are still the user's is for
  // CheckCurrent to say, once for all partitions.
  // Whether the caller may make the call `method` (full name) for the partition.
  absl::Status CheckPartition(absl::string_view method, const controller::Caller& caller,
                              const controller::PartitionAccess& partition) const;
  // Whether the caller may use the partition's devices, and so have a key to them.
  bool MayUseDevices(const controller::Caller& caller,
                     const controller::PartitionAccess& partition) const {
    return !secure_ || controller::MayUseDevices(caller, partition);
  }

 private:
  controller::Users& users_;
  const bool secure_;
  base::Mutex mutex_;
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);  // under way, by user
};

}  // namespace vpod::rpc
