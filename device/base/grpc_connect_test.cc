#include "device/base/grpc_connect.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

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

TEST(GrpcConnectTest, AForkedChildOfOneThatConnectedMayNotConnect) {
  const auto channel = Connect("unix:nobody-listens-here", Peer::kAgent, std::nullopt);
  EXPECT_TRUE(CheckMayConnect().ok());
  const std::string expected =
      absl::StrCat("this process was forked from process ", getpid(),
                   ", which had connected to a POD, and cannot do so itself: fork it earlier, or "
                   "start it without fork (in Python with the start method spawn)");
  const pid_t child = fork();
  if (child == 0) _exit(CheckMayConnect() == absl::FailedPreconditionError(expected) ? 7 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

}  // namespace
}  // namespace vpod::base
