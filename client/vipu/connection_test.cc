// How a client's calls go on when the controller has no thread for them.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "absl/strings/numbers.h"
#include "client/vipu/client.h"
#include "client/vipu/fake_controller.h"
#include "device/base/connection_failure.h"

namespace vpod::vipu {
namespace {

using std::chrono::milliseconds;

const absl::Status kRefused = absl::ResourceExhaustedError(base::kBusy);

class BusyControllerTest : public testing::Test {
 protected:
  Client ClientFor(milliseconds timeout) {
    const std::string address = controller_.address();
    const size_t colon = address.find(':');
    ClientConfig config;
    config.host = address.substr(0, colon);
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(colon + 1), &config.port));
    return Client(config, timeout);
  }
  FakeController controller_;
};

TEST_F(BusyControllerTest, RefusedCallsAreMadeAgain) {
  Client client = ClientFor(milliseconds(60000));
  vipuuser::ListPartitionsReply partitions;
  partitions.add_partitions()->mutable_requirements()->set_id("p");
  controller_.Answer("ListPartitions", {&partitions});
  controller_.RefuseFirst("ListPartitions", 3, kRefused);
  const auto listed = client.ListPartitions();
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->size(), 1u);
  EXPECT_EQ(controller_.Calls("ListPartitions"), 4);

  controller_.RefuseFirst("CreatePartition", 1, kRefused);
  vipuuser::CreatePartitionRequest request;
  request.mutable_requirements()->set_id("p");
  EXPECT_TRUE(client.CreatePartition(request).ok());
  EXPECT_EQ(controller_.Calls("CreatePartition"), 2);
}

TEST_F(BusyControllerTest, ARefusalIsToldWhenTheCallsTimeIsOver) {
  Client client = ClientFor(milliseconds(200));
  controller_.RefuseFirst("ListPartitions", 1000, kRefused);
  EXPECT_EQ(client.ListPartitions().status(), kRefused);
  EXPECT_GT(controller_.Calls("ListPartitions"), 1);
}

TEST_F(BusyControllerTest, OtherRefusalsAreFinal) {
  Client client = ClientFor(milliseconds(60000));
  const absl::Status full = absl::ResourceExhaustedError("No space for a partition of 16 IPUs.");
  controller_.RefuseFirst("ListPartitions", 1, full);
  EXPECT_EQ(client.ListPartitions().status(), full);
  EXPECT_EQ(controller_.Calls("ListPartitions"), 1);
}

}  // namespace
}  // namespace vpod::vipu
