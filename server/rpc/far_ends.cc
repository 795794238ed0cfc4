#include "server/rpc/far_ends.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"

namespace vpod::rpc {

absl::StatusOr<vipuagent::AnswerLinkReply> FarEnds::Ask(
    const std::string& endpoint, const vipuagent::AnswerLinkRequest& request) {
  std::shared_ptr<vipuagent::VipuAgent::Stub> stub;
  {
    base::MutexLock lock(mutex_);
    auto& entry = stubs_[endpoint];
    if (entry == nullptr) {
      entry = vipuagent::VipuAgent::NewStub(base::Connect(endpoint, base::Peer::kAgent, tls_));
    }
    stub = entry;
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  vipuagent::AnswerLinkReply reply;
  const grpc::Status status = stub->AnswerLink(&context, request, &reply);
  if (!status.ok()) return base::FromGrpc(status);
  return reply;
}

}  // namespace vpod::rpc
