// Asks the agents that hold the far ends of links (TestLink).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "device/base/mutex.h"
#include "device/base/tls.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"

namespace vpod::rpc {

// Thread-safe. Keeps a channel for each endpoint it was asked for.
class FarEnds {
 public:
  explicit FarEnds(const std::optional<base::Tls>& tls) : tls_(tls) {}
  // Blocks for two seconds at most.
  absl::StatusOr<vipuagent::AnswerLinkReply> Ask(const std::string& endpoint,
                                                 const vipuagent::AnswerLinkRequest& request);

 private:
  const std::optional<base::Tls> tls_;
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<vipuagent::VipuAgent::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
