// What a client that is refused again and again costs others: time to log in, and bytes of log.
//   VPOD_REFUSALS  calls that fill the log (20000)
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "device/base/grpc_connect.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "tests/security/secure_pod.h"

namespace vpod::testing {
namespace {

using grpc::StatusCode;
using vipuuser::VipuUser;

int CallsToRefuse() {
  const char* text = std::getenv("VPOD_REFUSALS");
  return text == nullptr ? 20000 : std::atoi(text);
}

class RefusedCallsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(pod_.ready()); }
  // On a connection of its own; the controller takes 100 calls at once on each.
  std::unique_ptr<VipuUser::Stub> Stub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return VipuUser::NewStub(base::Connect(pod_.server(), base::Peer::kController,
                                           pod_.Certificates("client"), arguments));
  }
  static void NameCaller(const std::string& user, const std::string& key,
                         grpc::ClientContext& context) {
    context.AddMetadata("vipu-user-id", user);
    context.AddMetadata("vipu-access-key", key);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(4));
  }
  // Of the controller's log, with the files that it was in before.
  uint64_t LogBytes() {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(pod_.pod().directory())) {
      if (entry.path().filename().string().rfind("server.log", 0) == 0) bytes += entry.file_size();
    }
    return bytes;
  }

  SecurePod pod_;
};

TEST_F(RefusedCallsTest, WrongKeysKeepNobodyElseOut) {
  // The trial of each takes some 30 ms of processor time.
  constexpr int kConnections = 10, kCalls = 1000;
  struct Attempt {
    grpc::ClientContext context;
    vipuuser::ListPartitionsRequest request;
    vipuuser::ListPartitionsReply reply;
  };
  std::vector<std::unique_ptr<VipuUser::Stub>> stubs(kConnections);
  for (auto& stub : stubs) stub = Stub();
  std::vector<Attempt> attempts(kCalls);
  std::atomic<int> tried = 0, refused = 0, over = 0;
  for (int i = 0; i < kCalls; ++i) {
    Attempt& attempt = attempts[static_cast<size_t>(i)];
    NameCaller(i % 2 == 0 ? "bob" : "nobody" + std::to_string(i), "wrong" + std::to_string(i),
               attempt.context);
    stubs[static_cast<size_t>(i % kConnections)]->async()->ListPartitions(
        &attempt.context, &attempt.request, &attempt.reply, [&](const grpc::Status& status) {
          tried += status.error_code() == StatusCode::UNAUTHENTICATED;
          refused += status.error_code() == StatusCode::RESOURCE_EXHAUSTED;
          ++over;
        });
  }
  while (over == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto since = std::chrono::steady_clock::now();
  const auto listed = vipu::Client(pod_.ConfigOf("eve"), std::chrono::seconds(60)).ListPartitions();
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - since);
  const int before = over;
  EXPECT_TRUE(listed.ok()) << listed.status();
  EXPECT_LT(before, kCalls) << "eve waits for two turns of others, and they for a hundred";
  ASSERT_TRUE(Within(std::chrono::seconds(240), [&] { return over == kCalls; }));
  std::printf(
      "first login of eve: %lld ms, while %d of %d wrong keys were answered; "
      "%d of them were tried\n",
      static_cast<long long>(waited.count()), before, kCalls, tried.load());
  EXPECT_EQ(tried + refused, kCalls);
}

TEST_F(RefusedCallsTest, FillNoDisk) {
  constexpr int kThreads = 8;
  const int calls = CallsToRefuse();
  const uint64_t before = LogBytes();
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const auto stub = Stub();
      for (int i = thread; i < calls; i += kThreads) {
        grpc::ClientContext context;
        NameCaller("eve", pod_.key("eve"), context);
        vipuuser::GetPartitionRequest request;
        request.set_partition_id("p" + std::to_string(i) + std::string(50, '-'));
        vipuuser::GetPartitionReply reply;
        refused +=
            stub->GetPartition(&context, request, &reply).error_code() == StatusCode::NOT_FOUND;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, calls);
  const uint64_t bytes = LogBytes() - before;
  std::printf("%d refused calls: %llu bytes of log\n", calls,
              static_cast<unsigned long long>(bytes));
  EXPECT_LE(bytes, uint64_t{10 << 20} * static_cast<uint64_t>(calls) / 1000000)
      << "at most 10 MiB for a million";
}

}  // namespace
}  // namespace vpod::testing
