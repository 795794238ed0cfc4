// The server's side of one Attach stream: the lease lives as long as it does.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <string>

#include "device/base/mutex.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "server/agent/agent.h"

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
  explicit AttachCall(agent::Agent& agent) : agent_(agent) {}
  void Open(const ipuof::v1::AttachOpen& open);
  void Attached(absl::StatusOr<ipuof::v1::Attached> result);
  void Send(const ipuof::v1::AttachEvent& event);
  // Ends the stream once what is queued has been written.
  void End(const grpc::Status& status);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  agent::Agent& agent_;
  std::shared_ptr<AttachCall> self_;
  ipuof::v1::AttachRequest request_;  // of the read under way
  base::Mutex mutex_;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;    // the client's side ended
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;  // in an orderly way
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::string lease_id_ ABSL_GUARDED_BY(mutex_);
  std::deque<ipuof::v1::AttachEvent> queue_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
