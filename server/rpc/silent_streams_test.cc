#include "server/rpc/silent_streams.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"

namespace vpod::rpc {
namespace {

constexpr std::chrono::seconds kLong(600);

// Counts the messages of a configuration.
class Service : public vipuagent::VipuAgent::Service {
 public:
  explicit Service(SilentStreams& streams) : streams_(streams) {}
  grpc::Status Configure(grpc::ServerContext* context,
                         grpc::ServerReader<vipuagent::ConfigureRequest>* reader,
                         vipuagent::ConfigureReply*) override {
    vipuagent::ConfigureRequest portion;
    while (streams_.Read(*context, *reader, &portion)) ++messages;
    return grpc::Status::OK;
  }
  std::atomic<int> messages = 0;

 private:
  SilentStreams& streams_;
};

class SilentStreamsTest : public testing::Test {
 protected:
  // A call of a client, which has sent nothing yet.
  struct Call {
    grpc::ClientContext context;
    vipuagent::ConfigureReply reply;
    std::unique_ptr<grpc::ClientWriter<vipuagent::ConfigureRequest>> writer;
  };

  explicit SilentStreamsTest(uint64_t most = 8) : streams_(most), service_(streams_) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = vipuagent::VipuAgent::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~SilentStreamsTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::unique_ptr<Call> Begin() {
    auto call = std::make_unique<Call>();
    call->context.set_wait_for_ready(true);
    call->writer = stub_->Configure(&call->context, &call->reply);
    return call;
  }

  SilentStreams streams_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<vipuagent::VipuAgent::Stub> stub_;
};

class OneSilentStreamTest : public SilentStreamsTest {
 protected:
  OneSilentStreamTest() : SilentStreamsTest(/*most=*/1) {}
};

TEST_F(SilentStreamsTest, AClientThatSendsIsNotDisturbed) {
  const auto call = Begin();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(call->writer->Write({}));
    streams_.EndThoseOlderThan(kLong);
  }
  call->writer->WritesDone();
  EXPECT_TRUE(call->writer->Finish().ok());
  EXPECT_EQ(service_.messages, 3);
}

TEST_F(SilentStreamsTest, TheCallOfASilentClientEnds) {
  const auto call = Begin();
  EXPECT_TRUE(call->writer->Write({}));
  // It is not known when the server waits for the second message.
  std::atomic<bool> over = false;
  std::thread ends([&] {
    while (!over) {
      if (service_.messages == 1) streams_.EndThoseOlderThan(std::chrono::seconds(0));
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(call->writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  over = true;
  ends.join();
}

TEST_F(OneSilentStreamTest, TheOldestMakesRoom) {
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(Begin());
    // The headers of a call travel with its first message.
    calls.back()->writer->Write({});
  }
  base::Mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  std::vector<std::thread> threads;
  for (const auto& call : calls) {
    threads.emplace_back([&, &call = *call] {
      EXPECT_EQ(call.writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
      base::MutexLock lock(mutex);
      ++ended;
      changed.notify_all();
    });
  }
  {
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return ended > 0; });
  }
  for (const auto& call : calls) call->context.TryCancel();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace vpod::rpc
