// gRPC in front of the agent: IPUoF, telemetry and machine management. Thin: every rule is in
// server/agent.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <optional>

#include "device/base/tls.h"
#include "server/agent/agent.h"
#include "server/rpc/bounded_listener.h"

namespace vpod::rpc {

// The services of one agent; the agent outlives them.
class AgentServices {
 public:
  // With `tls`, other agents are reached with it.
  explicit AgentServices(agent::Agent& agent, const std::optional<base::Tls>& tls = std::nullopt);
  ~AgentServices();
  // With `listener`, connections with a call count as busy there.
  void RegisterOn(grpc::ServerBuilder& builder, BoundedListener* listener = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::rpc
