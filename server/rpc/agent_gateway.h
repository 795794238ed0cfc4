// The controller's way to the agents' processes, over gRPC.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/base/tls.h"
#include "server/controller/controller.h"

namespace vpod::rpc {

// Reaches agents' processes; finishes or drops its calls when destroyed, after the controller must
// no longer be called.
class GrpcAgentGateway : public controller::AgentGateway {
 public:
  // Shows agents the certificate, when there is one.
  explicit GrpcAgentGateway(const std::optional<base::Tls>& tls);
  ~GrpcAgentGateway() override;
  void Configure(const std::string& endpoint, const vipuagent::ConfigureRequest& request,
                 std::function<void(absl::StatusOr<vipuagent::ConfigureReply>)> done) override;
  absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(const std::string& endpoint,
                                                                  const std::string& host) override;
  absl::Status ResetMachine(const std::string& endpoint, const std::string& host) override;
  absl::StatusOr<vipuagent::TestLinkReply> TestLink(
      const std::string& endpoint, const vipuagent::TestLinkRequest& request) override;
  absl::Status Inject(const std::string& endpoint,
                      const vipuagent::InjectRequest& request) override;
  void Forget(const std::string& endpoint) override;
  // Cancels what is under way and waits for it; later calls are dropped.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::rpc
