// How agents' processes reach each other for jobs that span them. Implemented over gRPC in
// server/rpc; the agent knows no gRPC type.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/fabric/v1/fabric.pb.h"

namespace vpod::agent {

// One part's stream to the coordinator of its job.
class CoordinatorStream {
 public:
  virtual ~CoordinatorStream() = default;
  // Queues a request; does not block. Nothing is sent after the stream has ended.
  virtual void Send(const fabric::v1::JobRequest& request) = 0;
  // No more requests will follow; the stream ends when the last is out.
  virtual void Close() = 0;
};

struct CoordinatorStreamEvents {
  std::function<void(const fabric::v1::JobEvent&)> on_event;
  // Once, last: the stream has ended.
  std::function<void(const absl::Status&)> on_end;
};

// Thread-safe.
class PeerGateway {
 public:
  virtual ~PeerGateway() = default;
  // Opens a stream to the process at `endpoint` (host:port). Failures come as on_end.
  virtual std::shared_ptr<CoordinatorStream> JoinJob(const std::string& endpoint,
                                                     CoordinatorStreamEvents events) = 0;
};

}  // namespace vpod::agent
