#include "server/rpc/unread_answers.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod::rpc {
namespace {

using std::chrono::system_clock;

constexpr std::chrono::seconds kSoon(60);

// Answers with a mebibyte, once it may.
class Service : public vipuuser::VipuUser::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const vipuuser::GetServerInfoRequest*,
                             vipuuser::GetServerInfoReply* reply) override {
    base::MutexLock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    lock.Wait(changed_, [this] { return open_; });
    reply->set_version(std::string(1 << 20, 'v'));
    return grpc::Status::OK;
  }
  void AwaitBegun(int count) {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [&] { return begun_ >= count; });
  }
  void SetOpen(bool open) {
    base::MutexLock lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

 private:
  base::Mutex mutex_;
  std::condition_variable changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
};

// A client with a connection of its own.
class Client {
 public:
  explicit Client(const std::string& endpoint, bool reads = true) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (!reads) {  // the server may send hardly anything before we read
      arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
      arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    }
    channel_ = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
    stub_ = vipuuser::VipuUser::NewStub(channel_);
  }
  ~Client() {
    waiting_.TryCancel();
    queue_.Shutdown();
    if (poller_.joinable()) poller_.join();
  }

  grpc::Status Ask() {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + kSoon);
    vipuuser::GetServerInfoReply reply;
    return stub_->GetServerInfo(&context, {}, &reply);
  }
  // Begins a call and never asks for its answer.
  void Begin() {
    EXPECT_TRUE(channel_->WaitForConnected(system_clock::now() + kSoon));
    reader_ = stub_->AsyncGetServerInfo(&waiting_, {}, &queue_);
    reader_->ReadInitialMetadata(nullptr);  // sends the request, too
    poller_ = std::thread([this] {
      void* tag = nullptr;
      bool ok = false;
      while (queue_.Next(&tag, &ok)) {
      }
    });
  }
  bool HasEnded() {
    return channel_->GetState(false) != GRPC_CHANNEL_READY ||
           channel_->WaitForStateChange(GRPC_CHANNEL_READY, system_clock::now() + kSoon);
  }
  bool IsConnected() { return channel_->GetState(false) == GRPC_CHANNEL_READY; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<vipuuser::VipuUser::Stub> stub_;
  grpc::ClientContext waiting_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<vipuuser::GetServerInfoReply>> reader_;
  std::thread poller_;  // moves bytes to and from the socket
};

class UnreadAnswersTest : public testing::Test {
 protected:
  // gRPC may start so many threads; half of as many calls, or of `calls`, may wait for clients.
  void Start(uint32_t threads, ConnectionLimits limits = {}, uint32_t calls = 0) {
    unread_ = std::make_unique<UnreadAnswers>(std::max(threads, calls));
    grpc::ServerBuilder builder;
    listener_ =
        *BoundedListener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), builder, limits);
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(static_cast<int>(threads));
    builder.SetResourceQuota(quota);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
    builder.RegisterService(&service_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
    watchers.push_back(unread_->Watch(listener_));
    builder.experimental().SetInterceptorCreators(std::move(watchers));
    server_ = builder.BuildAndStart();
    listener_->Start();
    endpoint_ = listener_->LocalEndpoint();
  }
  void TearDown() override {
    listener_->Close();
    server_->Shutdown(system_clock::now());
  }

  Service service_;
  std::unique_ptr<UnreadAnswers> unread_;
  std::shared_ptr<BoundedListener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::string endpoint_;
};

TEST_F(UnreadAnswersTest, TheClientThatHasNotReadForLongestMakesRoom) {
  Start(16);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<Client>(endpoint_, /*reads=*/false));
    clients.back()->Begin();
    service_.AwaitBegun(i + 1);
  }
  // A mebibyte counts beside the call, so that there is room for seven.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(clients[static_cast<size_t>(i)]->HasEnded()) << i;
  EXPECT_TRUE(clients.back()->IsConnected());
  EXPECT_TRUE(Client(endpoint_).Ask().ok());
}

TEST_F(UnreadAnswersTest, OneThatDoesNotReadForTooLongEnds) {
  Start(16);
  Client slow(endpoint_, /*reads=*/false), other(endpoint_);
  EXPECT_TRUE(other.Ask().ok());
  slow.Begin();
  service_.AwaitBegun(2);
  unread_->EndThoseOlderThan(std::chrono::hours(1));
  EXPECT_TRUE(slow.IsConnected());
  // The answer may still be on its way to the queue.
  do {
    unread_->EndThoseOlderThan(std::chrono::seconds(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (slow.IsConnected());
  EXPECT_TRUE(other.IsConnected());
  EXPECT_TRUE(other.Ask().ok());
}

// Their connections make room for others, although they have calls.
TEST_F(UnreadAnswersTest, ClientsThatDoNotReadKeepNobodyOut) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 400;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Start(256, {.descriptors_per_connection = 20});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(endpoint_, /*reads=*/false));
    clients.back()->Begin();
    service_.AwaitBegun(i + 1);
  }
  EXPECT_TRUE(Client(endpoint_).Ask().ok());
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(UnreadAnswersTest, ACallWithoutAThreadIsRefusedInOurWords) {
  // Both answers may wait at the same time.
  Start(3, {}, /*calls=*/6);
  service_.SetOpen(false);
  // One thread stays with the port.
  std::vector<grpc::Status> statuses(2);
  std::vector<std::thread> callers;
  for (grpc::Status& status : statuses)
    callers.emplace_back([&] { status = Client(endpoint_).Ask(); });
  service_.AwaitBegun(2);
  const grpc::Status refused = Client(endpoint_).Ask();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.error_message(),
            "The controller answers as many calls as it can at the moment; try again.");
  service_.SetOpen(true);
  for (std::thread& caller : callers) caller.join();
  for (const grpc::Status& status : statuses) EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(Client(endpoint_).Ask().ok());
}

}  // namespace
}  // namespace vpod::rpc
