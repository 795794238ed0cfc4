// Attaching to devices that others use, at an agent that says so.
#include "client/ipuof/ipuof_device.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "device/base/random_id.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"

namespace vpod::ipuof {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Refuses some attempts to attach, then grants all; it is on another host.
class BusyAgent : public v1::Ipuof::Service {
 public:
  explicit BusyAgent(int refusals, grpc::StatusCode code = grpc::StatusCode::RESOURCE_EXHAUSTED)
      : refusals_(refusals), code_(code) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~BusyAgent() override { server_->Shutdown(std::chrono::system_clock::now()); }

  int attempts() const { return attempts_; }

  // A partition of one IPU at this agent.
  vipu::ActivePartition Partition() const {
    vipuuser::PartitionConfig config;
    config.add_devices()->set_endpoint("127.0.0.1:" + std::to_string(port_));
    vipu::ActivePartition partition = vipu::Describe(config);
    partition.partition_id = "p1";
    return partition;
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::AttachEvent, v1::AttachRequest>;

  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override {
    v1::AttachRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    if (attempts_++ < refusals_) return {code_, "device 0 is in use by process 7"};
    v1::AttachEvent event;
    event.mutable_attached()->set_lease_id(base::RandomId());
    event.mutable_attached()->set_local_socket(base::RandomId());
    stream->Write(event);
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  }

  const int refusals_;
  const grpc::StatusCode code_;
  std::atomic<int> attempts_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

DeviceOptions Options(milliseconds wait, uint32_t ipus = 1) {
  DeviceOptions options{.wait = wait};
  options.job.set_local_replicas(1);
  options.job.set_total_replicas(1);
  options.job.set_ipus_per_replica(ipus);
  return options;
}

TEST(AttachDeviceTest, WithoutAWaitOneRefusalIsEnough) {
  const BusyAgent agent(1);
  const absl::Status status = AttachDevice(agent.Partition(), Options(milliseconds(0))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Failed to acquire 1 IPU(s): device 0 is in use by process 7"));
  EXPECT_EQ(agent.attempts(), 1);
}

TEST(AttachDeviceTest, WaitsUntilADeviceIsFree) {
  const BusyAgent agent(3);
  const auto device = AttachDevice(agent.Partition(), Options(milliseconds::max()));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), "device 0 of partition p1");
  EXPECT_EQ(agent.attempts(), 4);
}

TEST(AttachDeviceTest, AWaitHasAnEnd) {
  const BusyAgent agent(1 << 30);
  const absl::Status status = AttachDevice(agent.Partition(), Options(milliseconds(100))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use by process 7"));
}

TEST(AttachDeviceTest, AWaitCanBeEnded) {
  const BusyAgent agent(1 << 30);
  DeviceOptions options = Options(milliseconds::max());
  std::stop_source source;
  options.stopped = source.get_token();
  std::thread stopper([&] {
    while (agent.attempts() < 2) std::this_thread::yield();
    source.request_stop();
  });
  const absl::Status status = AttachDevice(agent.Partition(), options).status();
  stopper.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the wait for IPUs was ended"));
}

// They do not pass by waiting.
TEST(AttachDeviceTest, OtherRefusalsAreFinal) {
  const BusyAgent agent(1 << 30, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(AttachDevice(agent.Partition(), Options(milliseconds::max())).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const BusyAgent small(1 << 30);
  EXPECT_THAT(
      std::string(
          AttachDevice(small.Partition(), Options(milliseconds::max(), 2)).status().message()),
      HasSubstr("Failed to acquire 2 IPU(s): partition p1 has 1"));
  EXPECT_EQ(small.attempts(), 0);
}

}  // namespace
}  // namespace vpod::ipuof
