#include "client/vipu/fake_controller.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"

namespace vpod::vipu {
namespace {

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

std::string Metadata(const grpc::GenericCallbackServerContext& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  return it == context.client_metadata().end() ? ""
                                               : std::string(it->second.data(), it->second.size());
}

}  // namespace

// One call of any method: reads the request, writes the canned replies, ends with the status.
class FakeCall : public grpc::ServerGenericBidiReactor {
 public:
  FakeCall(FakeController& controller, const grpc::GenericCallbackServerContext& context)
      : controller_(controller), method_(context.method().substr(context.method().rfind('/') + 1)) {
    base::MutexLock lock(controller_.mutex_);
    controller_.user_id_ = Metadata(context, "vipu-user-id");
    controller_.access_key_ = Metadata(context, "vipu-access-key");
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    {
      base::MutexLock lock(controller_.mutex_);
      controller_.requests_[method_] = ok ? Bytes(request_) : "";
      ++controller_.calls_[method_];
      FakeController::Refusals& refusals = controller_.refusals_[method_];
      const auto it = controller_.answers_.find(method_);
      if (refusals.calls > 0) {
        --refusals.calls;
        answer_.status = refusals.status;
      } else {
        answer_ = it == controller_.answers_.end() ? FakeController::Canned{{""}, {}} : it->second;
      }
    }
    OnWriteDone(true);
  }

  void OnWriteDone(bool ok) override {
    if (!ok || next_ == answer_.replies.size()) return Finish(base::ToGrpc(answer_.status));
    reply_ = Buffer(answer_.replies[next_++]);
    StartWrite(&reply_);
  }

  void OnDone() override { delete this; }

 private:
  FakeController& controller_;
  const std::string method_;
  grpc::ByteBuffer request_, reply_;
  FakeController::Canned answer_;
  size_t next_ = 0;
};

struct FakeController::Server : grpc::CallbackGenericService {
  explicit Server(FakeController& controller) : controller(controller) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
    server = builder.BuildAndStart();
  }
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new FakeCall(controller, *context);
  }

  FakeController& controller;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

FakeController::FakeController() : server_(std::make_unique<Server>(*this)) {}
FakeController::~FakeController() { server_->server->Shutdown(); }

std::string FakeController::address() const { return absl::StrCat("127.0.0.1:", server_->port); }

void FakeController::Answer(const std::string& method,
                            const std::vector<const google::protobuf::Message*>& reply,
                            const absl::Status& status) {
  Canned canned = {.replies = {}, .status = status};
  for (const auto* message : reply) canned.replies.push_back(message->SerializeAsString());
  if (reply.empty() && status.ok()) canned.replies.emplace_back();
  base::MutexLock lock(mutex_);
  answers_[method] = std::move(canned);
}

void FakeController::RefuseFirst(const std::string& method, int calls, const absl::Status& status) {
  base::MutexLock lock(mutex_);
  refusals_[method] = {calls, status};
}

int FakeController::Calls(const std::string& method) {
  base::MutexLock lock(mutex_);
  return calls_[method];
}

std::string FakeController::LastBytes(const std::string& method) {
  base::MutexLock lock(mutex_);
  const auto it = requests_.find(method);
  EXPECT_NE(it, requests_.end()) << method << " was not called";
  return it == requests_.end() ? "" : it->second;
}

std::string FakeController::user_id() {
  base::MutexLock lock(mutex_);
  return user_id_;
}

std::string FakeController::access_key() {
  base::MutexLock lock(mutex_);
  return access_key_;
}

}  // namespace vpod::vipu
