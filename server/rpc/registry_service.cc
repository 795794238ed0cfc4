#include "absl/strings/str_split.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/network_interfaces.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using grpc::ServerContext;
using grpc::Status;

// Returns the interface of this host that leads to a peer ("ipv4:10.1.2.1:4711", as gRPC names it),
// without asking the peer.
std::string InterfaceOf(const std::string& peer) {
  const std::vector<std::string> parts = absl::StrSplit(peer, ':');
  return parts.size() == 3 && parts[0] == "ipv4" ? NetworkInterfaces::OfHost().Find(parts[1]) : "";
}

class RegistryService : public MeasuredService {
 public:
  RegistryService(controller::Controller& controller, MessageMemory& memory)
      : MeasuredService(vipuagent::VipuRegistry::service_full_name(), memory),
        controller_(controller) {
    Add("Register", kMachines, &RegistryService::Register);
    Add("Heartbeat", kMachines, &RegistryService::Heartbeat);
  }
  Status Register(ServerContext* context, const vipuagent::RegisterRequest* request,
                  vipuagent::RegisterReply* reply) {
    reply->set_heartbeat_interval_ms(
        static_cast<uint32_t>(controller_.agent_poll_interval().count()));
    return base::ToGrpc(controller_.Register(*request, InterfaceOf(context->peer())));
  }
  Status Heartbeat(ServerContext*, const vipuagent::HeartbeatRequest* request,
                   vipuagent::HeartbeatReply* reply) {
    *reply = controller_.Heartbeat(*request);
    return Status::OK;
  }

 private:
  controller::Controller& controller_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRegistryService(controller::Controller& controller,
                                                   MessageMemory& memory) {
  return std::make_unique<RegistryService>(controller, memory);
}

}  // namespace vpod::rpc
