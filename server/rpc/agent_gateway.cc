#include "server/rpc/agent_gateway.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <map>
#include <set>
#include <utility>

#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "device/base/status.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/portions.h"

namespace vpod::rpc {

struct GrpcAgentGateway::Impl {
  // A configuration on its way.
  struct Call : grpc::ClientWriteReactor<vipuagent::ConfigureRequest> {
    grpc::ClientContext context;
    std::vector<vipuagent::ConfigureRequest> portions;
    size_t written = 0;
    vipuagent::ConfigureReply reply;
    std::function<void(const grpc::Status&)> done;  // holds the call until it is over

    void WriteNext() {
      const vipuagent::ConfigureRequest& portion = portions[written++];
      if (portion.more_follow()) {
        StartWrite(&portion);
      } else {
        StartWriteLast(&portion, {});
      }
    }
    void OnWriteDone(bool ok) override {
      if (ok && written < portions.size()) WriteNext();
    }
    void OnDone(const grpc::Status& status) override { std::exchange(done, nullptr)(status); }
  };
  explicit Impl(const std::optional<base::Tls>& tls) : tls(tls) {}

  const std::optional<base::Tls> tls;
  base::Mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  std::map<std::string, std::shared_ptr<vipuagent::VipuAgent::Stub>> stubs;
  std::set<std::shared_ptr<Call>> calls;

  std::shared_ptr<vipuagent::VipuAgent::Stub> StubOf(const std::string& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    auto& entry = stubs[endpoint];
    if (entry == nullptr) {
      entry = vipuagent::VipuAgent::NewStub(base::Connect(endpoint, base::Peer::kAgent, tls));
    }
    return entry;
  }

  // Blocks for at most `patience`.
  template <class Request, class Reply>
  absl::Status Ask(const std::string& endpoint,
                   grpc::Status (vipuagent::VipuAgent::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Reply*),
                   const Request& request, Reply* reply,
                   std::chrono::seconds patience = std::chrono::seconds(3)) {
    std::shared_ptr<vipuagent::VipuAgent::Stub> stub;
    {
      base::MutexLock lock(mutex);
      stub = StubOf(endpoint);
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    return base::FromGrpc((stub.get()->*method)(&context, request, reply));
  }
};

GrpcAgentGateway::GrpcAgentGateway(const std::optional<base::Tls>& tls)
    : impl_(std::make_unique<Impl>(tls)) {
  base::KeepCallbackThreads();
}
GrpcAgentGateway::~GrpcAgentGateway() { Stop(); }

void GrpcAgentGateway::Stop() {
  base::MutexLock lock(impl_->mutex);
  impl_->stopping = true;
  for (const auto& call : impl_->calls) call->context.TryCancel();
  lock.Wait(impl_->changed, [this] { return impl_->calls.empty(); });
}

void GrpcAgentGateway::Configure(
    const std::string& endpoint, const vipuagent::ConfigureRequest& request,
    std::function<void(absl::StatusOr<vipuagent::ConfigureReply>)> done) {
  auto call = std::make_shared<Impl::Call>();
  call->portions = SplitInPortions(request);
  call->context.set_initial_metadata_corked(true);  // sent with the first message
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::seconds(5 * call->portions.size()));
  std::shared_ptr<vipuagent::VipuAgent::Stub> stub;
  {
    base::MutexLock lock(impl_->mutex);
    if (impl_->stopping) return;
    stub = impl_->StubOf(endpoint);
    impl_->calls.insert(call);
  }
  call->done = [this, call, done = std::move(done)](const grpc::Status& status) {
    bool stopping;
    {
      base::MutexLock lock(impl_->mutex);
      stopping = impl_->stopping;
    }
    if (!stopping && status.ok()) {
      done(std::move(call->reply));
    } else if (!stopping) {
      done(base::FromGrpc(status));
    }
    base::MutexLock lock(impl_->mutex);
    impl_->calls.erase(call);
    impl_->changed.notify_all();
  };
  stub->async()->Configure(&call->context, &call->reply, call.get());
  call->WriteNext();
  call->StartCall();
}

absl::StatusOr<vipuagent::DescribeMachineReply> GrpcAgentGateway::DescribeMachine(
    const std::string& endpoint, const std::string& host) {
  vipuagent::DescribeMachineRequest request;
  request.set_host(host);
  vipuagent::DescribeMachineReply reply;
  VPOD_RETURN_IF_ERROR(
      impl_->Ask(endpoint, &vipuagent::VipuAgent::Stub::DescribeMachine, request, &reply));
  return reply;
}

absl::Status GrpcAgentGateway::ResetMachine(const std::string& endpoint, const std::string& host) {
  vipuagent::ResetMachineRequest request;
  request.set_host(host);
  vipuagent::ResetMachineReply reply;
  return impl_->Ask(endpoint, &vipuagent::VipuAgent::Stub::ResetMachine, request, &reply);
}

absl::StatusOr<vipuagent::TestLinkReply> GrpcAgentGateway::TestLink(
    const std::string& endpoint, const vipuagent::TestLinkRequest& request) {
  vipuagent::TestLinkReply reply;
  // The agent itself asks another one, twice, and sends to it.
  VPOD_RETURN_IF_ERROR(impl_->Ask(endpoint, &vipuagent::VipuAgent::Stub::TestLink, request, &reply,
                                  std::chrono::seconds(7)));
  return reply;
}

absl::Status GrpcAgentGateway::Inject(const std::string& endpoint,
                                      const vipuagent::InjectRequest& request) {
  vipuagent::InjectReply reply;
  return impl_->Ask(endpoint, &vipuagent::VipuAgent::Stub::Inject, request, &reply);
}

void GrpcAgentGateway::Forget(const std::string& endpoint) {
  base::MutexLock lock(impl_->mutex);
  impl_->stubs.erase(endpoint);
}

}  // namespace vpod::rpc
