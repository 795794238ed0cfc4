// gRPC in front of the controller: user, admin and registry services. Thin: every rule is in
// server/controller.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "server/controller/controller.h"
#include "server/rpc/callers.h"
#include "server/rpc/measured_service.h"

namespace vpod::rpc {

// The services of one controller, which outlives them.
class ControllerServices {
 public:
  // When `secure`, the end-points must be guarded (server/rpc/call_guard.h). `metrics_endpoint`:
  // host:port where /metrics is served, for clients to know.
  ControllerServices(controller::Controller& controller, bool secure, std::string metrics_endpoint);
  ~ControllerServices();
  void RegisterUser(grpc::ServerBuilder& builder);
  // Administration and the agents' registry.
  void RegisterAdmin(grpc::ServerBuilder& builder);

 private:
  Callers callers_;
  MessageMemory memory_{64 << 20};
  const std::unique_ptr<grpc::Service> user_, admin_, registry_;
};

}  // namespace vpod::rpc
