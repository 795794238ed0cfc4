#include "client/session/open.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace vpod::session {
namespace {

// As poprun sets them for the second of two instances with two replicas each.
class OpenTest : public ::testing::Test {
 protected:
  static void StartedByPoprun() {
    setenv("POPDIST_NUM_TOTAL_REPLICAS", "4", 1);
    setenv("POPDIST_NUM_LOCAL_REPLICAS", "2", 1);
    setenv("POPDIST_REPLICA_INDEX_OFFSET", "2", 1);
    setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2", 1);
    setenv("VPOD_OFFLINE", "1", 1);  // the user's own partition must not be found
  }
  ~OpenTest() override {
    for (const char* name :
         {"POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS",
          "POPDIST_REPLICA_INDEX_OFFSET", "POPDIST_NUM_IPUS_PER_REPLICA", "VPOD_OFFLINE"})
      unsetenv(name);
  }
};

TEST_F(OpenTest, WithoutPoprunItIsAnIpuModel) {
  const auto device = OpenDevice({.replicas = 3});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), "IPUModel");
  EXPECT_EQ((*device)->local_replicas(), 3u);
}

TEST_F(OpenTest, AnIpuModelIsOfAMachineType) {
  EXPECT_TRUE(OpenDevice({.machine_type = "bow2000"}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(OpenDevice({.machine_type = "m1999"}).status()));
}

TEST_F(OpenTest, WithPoprunItIsNever) {
  StartedByPoprun();
  const auto device = OpenDevice({.ipus_per_replica = 2});
  EXPECT_TRUE(absl::IsFailedPrecondition(device.status())) << device.status();
  EXPECT_NE(device.status().message().find("--offline-mode"), std::string::npos) << device.status();
}

TEST_F(OpenTest, OtherIpusPerReplicaAreRefused) {
  StartedByPoprun();
  EXPECT_EQ(OpenDevice().status(),
            absl::FailedPreconditionError(
                "the program needs --ipus-per-replica 1, and poprun was started with 2"));
}

TEST_F(OpenTest, ADamagedEnvironmentIsAnError) {
  StartedByPoprun();
  setenv("POPDIST_NUM_IPUS_PER_REPLICA", "many", 1);
  const auto device = OpenDevice({.ipus_per_replica = 2});
  EXPECT_TRUE(absl::IsFailedPrecondition(device.status())) << device.status();
  EXPECT_NE(device.status().message().find("POPDIST_NUM_IPUS_PER_REPLICA is 'many'"),
            std::string::npos)
      << device.status();
}

}  // namespace
}  // namespace vpod::session
