// gRPC between the agents of a partition: the coordinator's end of parts elsewhere, and the way of
// a part to its coordinator.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>
#include <optional>

#include "device/base/tls.h"
#include "server/agent/agent.h"

namespace vpod::rpc {

// The Fabric service of an agent, which outlives it.
std::unique_ptr<grpc::Service> MakeFabricService(agent::Agent& agent);

// Reaches peers; ends its streams when stopped. Outlives the agent that uses it.
class GrpcPeerGateway : public agent::PeerGateway {
 public:
  explicit GrpcPeerGateway(std::optional<base::Tls> tls = std::nullopt);
  ~GrpcPeerGateway() override;
  std::shared_ptr<agent::CoordinatorStream> JoinJob(const std::string& endpoint,
                                                    agent::CoordinatorStreamEvents events) override;
  // Cancels the streams and waits for their ends; later ones end at once.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::rpc
