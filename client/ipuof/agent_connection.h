// How a lease reaches its agent.
#pragma once

#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/vipu/ipuof_config.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"

namespace vpod::ipuof {

// host:port of the agent of a device.
std::string EndpointOf(const vipuuser::IpuofDevice& device);
// "agent ag3 at 10.1.2.4:8080"; of a process with several machines, the first and the last.
std::string NameOfAgent(const vipu::ActivePartition& partition, const std::string& endpoint);

// `endpoint` is host:port. An agent that is cut off is noticed within four seconds; one of this
// host, which can only stand still, within fifteen. FailedPrecondition is base::CheckMayConnect's.
absl::StatusOr<std::unique_ptr<v1::Ipuof::Stub>> ConnectToAgent(
    const std::string& endpoint, const vipu::ActivePartition& partition);

// The agent's sign that our host has not been cut off: a connection of its own, so that the kernel
// at the other end always finds it idle.
class Pulse {
 public:
  static absl::StatusOr<std::shared_ptr<Pulse>> Start(const std::string& endpoint,
                                                      const vipu::ActivePartition& partition,
                                                      const std::string& lease_id);
  void Stop() { context_.TryCancel(); }

 private:
  std::unique_ptr<v1::Ipuof::Stub> stub_;
  grpc::ClientContext context_;
  v1::PulseRequest request_;
  v1::PulseReply reply_;
};

}  // namespace vpod::ipuof
