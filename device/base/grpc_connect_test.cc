#include "device/base/grpc_connect.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

namespace vpod::base {
namespace {

// The caller who waits for a call may drop the channel before the callback that told it has
// returned.
TEST(GrpcConnectTest, ACallbackMayDropTheLastChannel) {
  KeepCallbackThreads();
  for (int i = 0; i < 20; ++i) {
    struct Call {
      grpc::ClientContext context;
      grpc::ByteBuffer request, reply;
      std::promise<grpc::StatusCode> code;
    };
    auto call = std::make_unique<Call>();
    auto code = call->code.get_future();
    std::promise<void> dropped;
    {
      grpc::GenericStub stub(Connect("unix:nobody-listens-here", Peer::kAgent, std::nullopt));
      Call* const raw = call.get();
      grpc::Slice nothing;
      raw->request = grpc::ByteBuffer(&nothing, 1);
      stub.UnaryCall(&raw->context, "/a/b", {}, &raw->request, &raw->reply,
                     [&dropped, call = std::shared_ptr<Call>(std::move(call))](
                         const grpc::Status& status) mutable {
                       dropped.get_future().wait();
                       call->code.set_value(status.error_code());
                     });
    }
    dropped.set_value();  // the call alone holds the channel now
    EXPECT_EQ(code.get(), grpc::StatusCode::UNAVAILABLE);
  }
}

}  // namespace
}  // namespace vpod::base
