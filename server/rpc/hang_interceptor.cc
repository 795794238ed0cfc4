#include "server/rpc/hang_interceptor.h"

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace vpod::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr absl::string_view kInject = "/vipuagent.VipuAgent/Inject";

class Interceptor : public grpc::experimental::Interceptor {
 public:
  Interceptor(agent::HangGate& gate, bool closes_gate) : gate_(gate), closes_gate_(closes_gate) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    const bool answers =
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS);
    if (!gate_.closed() || (closes_gate_ && answers)) return methods->Proceed();
    gate_.WhenOpen([methods] { methods->Proceed(); });
  }

 private:
  agent::HangGate& gate_;
  const bool closes_gate_;
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(agent::HangGate& gate) : gate_(gate) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(gate_, info->method() == kInject);
  }

 private:
  agent::HangGate& gate_;
};

}  // namespace

void HoldCallsAt(agent::HangGate& gate, grpc::ServerBuilder& builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>(gate));
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace vpod::rpc
