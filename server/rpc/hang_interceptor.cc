#include "server/rpc/hang_interceptor.h"

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace vpod::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr absl::string_view kInject = "/vipuagent.VipuAgent/Inject";

// Methods whose messages this process parses itself (client_calls.h, grpc_transport.h).
bool IsRaw(absl::string_view method) {
  return absl::StartsWith(method, "/vpod.ipuof.v1.Ipuof/") ||
         absl::StartsWith(method, "/vpod.telemetry.v1.Telemetry/") ||
         method == "/vpod.fabric.v1.Fabric/Carry";
}

class Interceptor : public grpc::experimental::Interceptor {
 public:
  Interceptor(agent::HangGate& gate, const char* method, BoundedListener* listener,
              const grpc::ServerContextBase& context)
      : gate_(gate),
        closes_gate_(method == kInject),
        raw_(IsRaw(method)),
        listener_(listener),
        context_(context) {}
  ~Interceptor() override {
    if (!peer_.empty()) listener_->CallEnds(peer_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // A call that the agent itself ends has nothing to hold back.
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CANCEL)) return;
    // The context knows its peer only once the call has begun.
    if (listener_ != nullptr && peer_.empty() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      peer_ = context_.peer();
      listener_->CallBegins(peer_);
    }
    if (listener_ != nullptr &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        methods->GetRecvMessage() != nullptr)
      listener_->MessageDelivered(peer_, SizeOf(methods->GetRecvMessage()));
    const bool answers =
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS);
    if (!gate_.closed() || (closes_gate_ && answers)) return methods->Proceed();
    gate_.WhenOpen([methods] { methods->Proceed(); });
  }

 private:
  // Size of a message that gRPC parsed, or left to us.
  size_t SizeOf(void* message) const {
    return raw_ ? static_cast<grpc::ByteBuffer*>(message)->Length()
                : static_cast<google::protobuf::Message*>(message)->ByteSizeLong();
  }

  agent::HangGate& gate_;
  const bool closes_gate_, raw_;
  BoundedListener* const listener_;
  const grpc::ServerContextBase& context_;
  std::string peer_;  // empty: the call has not begun
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(agent::HangGate& gate, BoundedListener* listener) : gate_(gate), listener_(listener) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(gate_, info->method(), listener_, *info->server_context());
  }

 private:
  agent::HangGate& gate_;
  BoundedListener* const listener_;
};

}  // namespace

void HoldCallsAt(agent::HangGate& gate, grpc::ServerBuilder& builder, BoundedListener* listener) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>(gate, listener));
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace vpod::rpc
