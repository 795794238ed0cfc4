// Clients that try to use the controller up: its descriptors, its threads, its memory, its backups.
// Each attack is held within stated bounds, and a job and other clients go on meanwhile.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "tests/support/http_get.h"
#include "tests/system/exhaustion.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

using std::chrono::steady_clock;

// One connection to the controller.
std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, bool reads = true) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!reads) {  // the controller may send hardly anything before we read
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

// Calls whose answers nobody asks for.
class UnreadCalls {
 public:
  UnreadCalls() : poller_([this] { Poll(); }) {}
  ~UnreadCalls() {
    for (const auto& call : calls_) call->context.TryCancel();
    queue_.Shutdown();
    poller_.join();
  }
  // So many calls of that user.
  void Begin(const std::shared_ptr<grpc::Channel>& channel, const std::string& user, int count) {
    stubs_.push_back(vipuuser::VipuUser::NewStub(channel));
    vipuuser::ListPartitionsRequest request;
    request.set_with_devices(true);
    for (int i = 0; i < count; ++i) {
      Call& call = *calls_.emplace_back(std::make_unique<Call>());
      call.context.AddMetadata("vipu-user-id", user);
      call.reader = stubs_.back()->AsyncListPartitions(&call.context, request, &queue_);
      call.reader->ReadInitialMetadata(nullptr);  // sends the request, too
    }
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<vipuuser::ListPartitionsReply>> reader;
  };

  // Without it nothing is sent.
  void Poll() {
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<vipuuser::VipuUser::Stub>> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::thread poller_;
};

class ExhaustionControllerTest : public FaultTable {
 protected:
  void SetUp() override {
    FaultTable::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    endpoint_ = "127.0.0.1:" + std::to_string(pod_.port());
    server_ = pod_.ServerPid();
    const auto info = client_->ServerInfo();
    ASSERT_TRUE(info.ok()) << info.status();
    metrics_ = "http://" + info->metrics_endpoint();
    cost_.Begin(server_);
  }
  void TearDown() override {
    EXPECT_EQ(pod_.ServerPid(), server_);
    EXPECT_NE(FootprintOf(server_).memory_kib, 0) << "the controller has died";
    FaultTable::TearDown();
  }

  // A user on a new connection is served.
  void ExpectAnswers(const std::string& when) {
    const auto begin = steady_clock::now();
    const Outcome list = pod_.Run({"vipu", "list", "partitions"}, kSoon);
    std::printf("%s: an answer within %ld ms\n", when.c_str(), Since(begin));
    EXPECT_EQ(list.code, 0) << when << ": " << list.err;
    EXPECT_NE(list.out.find("mine"), std::string::npos) << when << ": " << list.out;
  }
  void ExpectHealthy(const std::string& when) {
    const std::string answer = HttpGet(metrics_ + "/healthz");
    EXPECT_EQ(answer.substr(0, answer.find("\r\n")), "HTTP/1.0 200 OK") << when << ": " << answer;
  }
  void LimitDescriptors(rlim_t number) {
    const rlimit few = {number, number};
    ASSERT_EQ(prlimit(server_, RLIMIT_NOFILE, &few, nullptr), 0);
  }

  std::string endpoint_, metrics_;
  int server_ = 0;
  Cost cost_;
};

// Twice: what gRPC 1.51 does by itself is seen afterwards.
TEST_F(ExhaustionControllerTest, IdleConnectionsKeepNobodyOut) {
  LimitDescriptors(128);
  // What begins every connection of HTTP/2, with empty settings.
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  for (const auto& [kind, bytes] :
       {std::pair<std::string, std::string>{"silent", ""}, {"idle HTTP/2", hello}}) {
    auto idle = ConnectTo(endpoint_, 200, bytes);
    ExpectAnswers("200 " + kind + " connections, 128 descriptors");
    ExpectHealthy(kind);
    idle.clear();
    ExpectAnswers("after 200 " + kind + " connections");
    ExpectHealthy("after " + kind);
  }
  cost_.ExpectHeld("400 idle connections", 64);
}

TEST_F(ExhaustionControllerTest, IdleConnectionsDoNotBlindTheMetrics) {
  ExpectMetricsSeen(metrics_ + "/metrics", "the controller's metrics");
}

// At both ends at once, as many as there are descriptors.
TEST_F(ExhaustionControllerTest, IdleConnectionsToTheMetricsKeepNobodyOut) {
  LimitDescriptors(128);
  const auto calls = ConnectTo(endpoint_, 200);
  const auto readers = ConnectTo(metrics_.substr(metrics_.find("://") + 3), 200);
  ExpectAnswers("200 connections at each end-point, 128 descriptors");
  ExpectHealthy("200 connections at each end-point");
}

// Calls whose message does not come.
TEST_F(ExhaustionControllerTest, SilentCallsHoldNoThread) {
  constexpr int kConnections = 30, kCalls = 100;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls;
  for (int i = 0; i < kConnections; ++i) {
    stubs.push_back(std::make_unique<grpc::GenericStub>(Connect(endpoint_)));
    for (int call = 0; call < kCalls; ++call) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      calls.push_back(stubs.back()->PrepareCall(contexts.back().get(),
                                                "/vipuuser.VipuUser/CreatePartition", &queue));
      calls.back()->StartCall(nullptr);
    }
  }
  void* tag;
  bool ok;
  for (size_t i = 0; i < calls.size(); ++i) ASSERT_TRUE(queue.Next(&tag, &ok));
  ExpectAnswers("3,000 silent calls");
  cost_.ExpectHeld("3,000 silent calls", 200);
  for (auto& context : contexts) context->TryCancel();
}

// More than there are threads.
TEST_F(ExhaustionControllerTest, SlowReadersAreEnded) {
  constexpr int kConnections = 20, kCalls = 50;
  UnreadCalls calls;
  for (int i = 0; i < kConnections; ++i)
    calls.Begin(Connect(endpoint_, /*reads=*/false), absl::StrCat("attacker", i), kCalls);
  EXPECT_TRUE(Within(kSoon, [&] {
    return FootprintOf(server_).threads > cost_.threads_before() + 32;
  })) << "no answer waits for its client";
  ExpectAnswers("1,000 calls whose answer is not read");
  cost_.ExpectHeld("1,000 calls whose answer is not read", 256, /*most_threads=*/256);
  const auto begin = steady_clock::now();
  EXPECT_TRUE(
      Within(4 * kSoon, [&] { return FootprintOf(server_).threads < cost_.threads_before() + 16; }))
      << FootprintOf(server_).threads << " threads wait for clients that do not read";
  std::printf("their threads are free after %ld ms\n", Since(begin));
}

TEST_F(ExhaustionControllerTest, AClientThatStopsInABackupBarsNoOther) {
  // Events make the backup longer than what gRPC and the host buffer of it.
  vipuuser::CreatePartitionRequest wanted;
  wanted.mutable_requirements()->set_id(std::string(63, 'n'));
  wanted.mutable_requirements()->set_size(1);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(client_->CreatePartition(wanted), absl::OkStatus()) << i;
    ASSERT_EQ(client_->RemovePartition(wanted.requirements().id()), absl::OkStatus()) << i;
  }
  cost_.Begin(server_);
  struct Stalled {
    grpc::ClientContext context;
    std::unique_ptr<vipuadmin::VipuAdmin::Stub> stub;
    std::unique_ptr<grpc::ClientReader<vipuadmin::BackupReply>> reader;
  };
  std::vector<std::unique_ptr<Stalled>> stalled;
  for (int i = 0; i < 20; ++i) {
    stalled.push_back(std::make_unique<Stalled>());
    Stalled& client = *stalled.back();
    client.context.AddMetadata("vipu-user-id", "attacker");
    client.stub = vipuadmin::VipuAdmin::NewStub(Connect(endpoint_, /*reads=*/false));
    client.reader = client.stub->Backup(&client.context, {});
    // The first piece is here; the others are not asked for.
    vipuadmin::BackupReply piece;
    ASSERT_TRUE(client.reader->Read(&piece))
        << i << ": " << client.reader->Finish().error_message();
  }
  const auto begin = steady_clock::now();
  const Outcome backup = pod_.Run({"vipu-admin", "backup", pod_.directory() + "/backup"});
  std::printf("20 clients stopped in a backup: another one takes %ld ms\n", Since(begin));
  EXPECT_EQ(backup.code, 0) << backup.err;
  EXPECT_GE(FootprintOf(server_).threads, cost_.threads_before() + 10) << "nothing has stopped";
  cost_.ExpectHeld("20 clients that stopped in a backup", 128, /*most_threads=*/32);
  for (auto& client : stalled) client->context.TryCancel();
}

}  // namespace
}  // namespace vpod::testing
