#include "server/rpc/hang_interceptor.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "server/rpc/call_watch.h"

namespace vpod::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr absl::string_view kInject = "/vipuagent.VipuAgent/Inject";
constexpr absl::string_view kConfigure = "/vipuagent.VipuAgent/Configure";

// Methods whose messages this process parses itself (client_calls.h, grpc_transport.h,
// incoming_configuration.h).
CallWatch::Raw RawOf(absl::string_view method) {
  if (method == kConfigure) return CallWatch::Raw::kRequests;
  return absl::StartsWith(method, "/vpod.ipuof.v1.Ipuof/") ||
                 absl::StartsWith(method, "/vpod.telemetry.v1.Telemetry/") ||
                 method == "/vpod.fabric.v1.Fabric/Carry"
             ? CallWatch::Raw::kAll
             : CallWatch::Raw::kNone;
}

class Interceptor : public grpc::experimental::Interceptor {
 public:
  Interceptor(agent::HangGate& gate, const char* method, BoundedListener* listener,
              const grpc::ServerContextBase& context)
      : gate_(gate), closes_gate_(method == kInject), watch_(listener, context, RawOf(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // A call that the agent itself ends has nothing to hold back.
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CANCEL)) return;
    const auto is = [&](InterceptionHookPoints point) {
      return methods->QueryInterceptionHookPoint(point);
    };
    watch_.See(*methods);
    const bool answers = is(InterceptionHookPoints::PRE_SEND_STATUS);
    // A client that does not read must not keep its place from others.
    if (answers || is(InterceptionHookPoints::PRE_SEND_MESSAGE)) watch_.AwaitClient();
    if (is(InterceptionHookPoints::POST_SEND_MESSAGE)) watch_.GoOn();
    if (!gate_.closed() || (closes_gate_ && answers)) return methods->Proceed();
    gate_.WhenOpen([methods] { methods->Proceed(); });
  }

 private:
  agent::HangGate& gate_;
  const bool closes_gate_;
  CallWatch watch_;
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
