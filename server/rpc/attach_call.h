// The server's side of one Attach stream: the lease lives as long as it does.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "device/base/mutex.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "server/agent/agent.h"
#include "server/rpc/client_calls.h"
#include "server/rpc/write_queue.h"

namespace vpod::rpc {

// Callbacks of the agent hold it weakly.
class AttachCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                   public ClientCall {
 public:
  static AttachCall* Start(grpc::CallbackServerContext* context, PendingCalls& waiting,
                           agent::Agent& agent);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  AttachCall(grpc::CallbackServerContext* context, PendingCalls& waiting, agent::Agent& agent);
  void Closed();
  // Ends the stream once the client has read what it was told.
  void EndStream(const grpc::Status& status);
  void Send(const ipuof::v1::AttachEvent& event);
  void Open(const ipuof::v1::AttachOpen& open);
  void Attached(absl::StatusOr<ipuof::v1::Attached> result);

  PendingCalls& waiting_;
  agent::Agent& agent_;
  grpc::ByteBuffer bytes_;  // of the read under way
  // For the log; both are set before the agent may call back.
  ipuof::v1::ProcessInfo process_;
  std::string device_;
  base::Mutex mutex_;
  std::string user_ ABSL_GUARDED_BY(mutex_);  // whose fabric key the client showed
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;    // the client's side ended
  bool detached_ ABSL_GUARDED_BY(mutex_) = false;  // in an orderly way
  std::string lease_id_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<void> attach_ ABSL_GUARDED_BY(mutex_);  // to give it up while it waits
  WriteQueue<grpc::ByteBuffer> events_;
};

}  // namespace vpod::rpc
