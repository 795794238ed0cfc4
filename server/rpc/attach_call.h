// The server's side of one Attach stream: the lease lives as long as it does.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "device/base/mutex.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "server/agent/agent.h"
#include "server/rpc/write_queue.h"

namespace vpod::rpc {

// Owns itself until gRPC is done with it. Callbacks of the agent hold it weakly.
class AttachCall : public grpc::ServerBidiReactor<ipuof::v1::AttachRequest, ipuof::v1::AttachEvent>,
                   public std::enable_shared_from_this<AttachCall> {
 public:
  static AttachCall* Start(agent::Agent& agent);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  explicit AttachCall(agent::Agent& agent);
  void Open(const ipuof::v1::AttachOpen& open);
  void Attached(absl::StatusOr<ipuof::v1::Attached> result);

  agent::Agent& agent_;
  std::shared_ptr<AttachCall> self_;
  ipuof::v1::AttachRequest request_;  // of the read under way
  base::Mutex mutex_;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;    // the client's side ended
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;  // in an orderly way
  std::string lease_id_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<void> attach_ ABSL_GUARDED_BY(mutex_);  // to give it up while it waits
  WriteQueue<ipuof::v1::AttachEvent> events_;
};

}  // namespace vpod::rpc
