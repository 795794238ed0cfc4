#include "server/rpc/controller_services.h"

#include "server/rpc/service_support.h"

namespace vpod::rpc {

ControllerServices::ControllerServices(controller::Controller& controller, bool secure,
                                       std::string metrics_endpoint)
    : callers_(controller.users(), secure),
      user_(MakeUserService(controller, callers_, std::move(metrics_endpoint))),
      admin_(MakeAdminService(controller, callers_)),
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
