#include "server/rpc/controller_services.h"

#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

// gRPC would unpack a message before it looks at its size.
void RefusePackedMessages(grpc::ServerBuilder& builder) {
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
}

}  // namespace

ControllerServices::ControllerServices(controller::Controller& controller, bool secure,
                                       std::string metrics_endpoint)
    : callers_(controller.users(), secure),
      user_(MakeUserService(controller, callers_, std::move(metrics_endpoint), memory_)),
      admin_(MakeAdminService(controller, callers_, memory_)),
      registry_(MakeRegistryService(controller, memory_)) {}
ControllerServices::~ControllerServices() = default;

void ControllerServices::RegisterUser(grpc::ServerBuilder& builder) {
  RefusePackedMessages(builder);
  builder.RegisterService(user_.get());
}

void ControllerServices::RegisterAdmin(grpc::ServerBuilder& builder) {
  RefusePackedMessages(builder);
  builder.RegisterService(admin_.get());
  builder.RegisterService(registry_.get());
}

}  // namespace vpod::rpc
