// gRPC in front of the controller: user, admin and registry services. Thin: every rule is in
// server/controller.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "server/controller/controller.h"
#include "server/controller/users.h"
#include "server/rpc/callers.h"

namespace vpod::rpc {

// The services of one controller, which outlives them as the users do.
class ControllerServices {
 public:
<<<<<<< HEAD
  // `metrics_endpoint`: host:port where /metrics is served, for clients to know.
  ControllerServices(controller::Controller& controller, std::string metrics_endpoint);
=======
  // When `secure`, the end-points must be guarded (server/rpc/call_guard.h).
  ControllerServices(controller::Controller& controller, controller::Users& users, bool secure);
>>>>>>> efb3112 (vipu-server: --secure, --tls, --tls-init, a configuration file; users and who may touch which partition)
  ~ControllerServices();
  void RegisterUser(grpc::ServerBuilder& builder);
  // Administration and the agents' registry.
  void RegisterAdmin(grpc::ServerBuilder& builder);

 private:
  Callers callers_;
  const std::unique_ptr<grpc::Service> user_, admin_, registry_;
};

}  // namespace vpod::rpc
