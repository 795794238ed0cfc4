// gRPC in front of the controller: user, admin and registry services, and the way back to the
// agents. Thin: every rule is in server/controller.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>

#include "server/controller/controller.h"

namespace vpod::rpc {

// Reaches agents' processes; finishes or drops its calls when destroyed, after the controller must
// no longer be called.
class GrpcAgentGateway : public controller::AgentGateway {
 public:
  GrpcAgentGateway();
  ~GrpcAgentGateway() override;
  void Configure(const std::string& endpoint, const vipuagent::ConfigureRequest& request,
                 std::function<void(absl::Status)> done) override;
  absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(const std::string& endpoint,
                                                                  const std::string& host) override;
  // Cancels what is under way and waits for it; later calls are dropped.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The services of one controller, which outlives them.
class ControllerServices {
 public:
  explicit ControllerServices(controller::Controller& controller);
  ~ControllerServices();
  void RegisterUser(grpc::ServerBuilder& builder);
  // Administration and the agents' registry.
  void RegisterAdmin(grpc::ServerBuilder& builder);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::rpc
