// Asks the agents that hold the far ends of links (TestLink).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"

namespace vpod::rpc {

// Thread-safe. Keeps a channel for each endpoint it was asked for.
class FarEnds {
 public:
  // Blocks for two seconds at most.
  absl::StatusOr<vipuagent::AnswerLinkReply> Ask(const std::string& endpoint,
                                                 const vipuagent::AnswerLinkRequest& request);

 private:
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<vipuagent::VipuAgent::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
