#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using grpc::ServerContext;
using grpc::Status;

class RegistryService : public vipuagent::VipuRegistry::Service {
 public:
  explicit RegistryService(controller::Controller& controller) : controller_(controller) {}
  Status Register(ServerContext*, const vipuagent::RegisterRequest* request,
                  vipuagent::RegisterReply* reply) override {
    reply->set_heartbeat_interval_ms(
        static_cast<uint32_t>(controller_.agent_poll_interval().count()));
    return base::ToGrpc(controller_.Register(*request));
  }
  Status Heartbeat(ServerContext*, const vipuagent::HeartbeatRequest* request,
                   vipuagent::HeartbeatReply* reply) override {
    *reply = controller_.Heartbeat(*request);
    return Status::OK;
  }

 private:
  controller::Controller& controller_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRegistryService(controller::Controller& controller) {
  return std::make_unique<RegistryService>(controller);
}

}  // namespace vpod::rpc
