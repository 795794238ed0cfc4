#include "server/rpc/controller_services.h"

#include "server/rpc/service_support.h"

namespace vpod::rpc {

<<<<<<< HEAD
ControllerServices::ControllerServices(controller::Controller& controller,
                                       std::string metrics_endpoint)
    : user_(MakeUserService(controller, std::move(metrics_endpoint))),
      admin_(MakeAdminService(controller)),
=======
ControllerServices::ControllerServices(controller::Controller& controller, controller::Users& users,
                                       bool secure)
    : callers_(users, secure),
      user_(MakeUserService(controller, callers_)),
      admin_(MakeAdminService(controller, callers_)),
>>>>>>> efb3112 (vipu-server: --secure, --tls, --tls-init, a configuration file; users and who may touch which partition)
      registry_(MakeRegistryService(controller)) {}
ControllerServices::~ControllerServices() = default;

void ControllerServices::RegisterUser(grpc::ServerBuilder& builder) {
  builder.RegisterService(user_.get());
}

void ControllerServices::RegisterAdmin(grpc::ServerBuilder& builder) {
  builder.RegisterService(admin_.get());
  builder.RegisterService(registry_.get());
}

}  // namespace vpod::rpc
