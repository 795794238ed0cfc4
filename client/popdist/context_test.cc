#include "client/popdist/context.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

namespace popdist {
namespace {

class ContextTest : public testing::Test {
 protected:
  ContextTest() {
    for (const char* name : {"POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS",
                             "POPDIST_NUM_IPUS_PER_REPLICA", "POPDIST_REPLICA_INDEX_OFFSET",
                             "POPDIST_LOCAL_INSTANCE_INDEX", "POPDIST_NODE_DEVICE_ID"})
      unsetenv(name);
  }
  static void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  static void SetReplicas(const std::string& total, const std::string& local,
                          const std::string& offset) {
    Set("POPDIST_NUM_TOTAL_REPLICAS", total);
    Set("POPDIST_NUM_LOCAL_REPLICAS", local);
    Set("POPDIST_REPLICA_INDEX_OFFSET", offset);
  }
  static std::string Error(const std::function<void()>& call) {
    try {
      call();
    } catch (const popdist_error& error) {
      return error.what();
    }
    ADD_FAILURE() << "no popdist_error";
    return "";
  }
};

TEST_F(ContextTest, WithoutEnvironmentThereIsOneInstanceOfOneReplica) {
  EXPECT_FALSE(isPopdistEnvSet());
  EXPECT_EQ(getNumTotalReplicas(), 1u);
  EXPECT_EQ(getNumLocalReplicas(), 1u);
  EXPECT_EQ(getNumIpusPerReplica(), 1u);
  EXPECT_EQ(getNumInstances(), 1u);
  EXPECT_EQ(getInstanceIndex(), 0u);
  EXPECT_EQ(getLocalInstanceIndex(), 0u);
  EXPECT_EQ(getReplicaIndexOffset(), 0u);
  EXPECT_TRUE(checkNumIpusPerReplica(8));
}

TEST_F(ContextTest, EnvironmentOfPoprunIsRead) {
  SetReplicas("64", "4", "20");
  Set("POPDIST_NUM_IPUS_PER_REPLICA", "2");
  Set("POPDIST_LOCAL_INSTANCE_INDEX", "1");
  EXPECT_TRUE(isPopdistEnvSet());
  EXPECT_EQ(getNumTotalReplicas(), 64u);
  EXPECT_EQ(getNumLocalReplicas(), 4u);
  EXPECT_EQ(getNumIpusPerReplica(), 2u);
  EXPECT_EQ(getNumInstances(), 16u);
  EXPECT_EQ(getInstanceIndex(), 5u);
  EXPECT_EQ(getLocalInstanceIndex(), 1u);
  EXPECT_EQ(getReplicaIndexOffset(), 20u);
  EXPECT_TRUE(checkNumIpusPerReplica(2));
  EXPECT_FALSE(checkNumIpusPerReplica(4));
}

TEST_F(ContextTest, HalfAnEnvironmentIsRefused) {
  Set("POPDIST_NUM_TOTAL_REPLICAS", "4");
  EXPECT_EQ(Error([] { getNumInstances(); }),
            "POPDIST_NUM_TOTAL_REPLICAS is set but POPDIST_REPLICA_INDEX_OFFSET is not; start the "
            "program with poprun, or unset both");
  Set("POPDIST_REPLICA_INDEX_OFFSET", "0");
  EXPECT_EQ(Error([] { getNumTotalReplicas(); }),
            "POPDIST_REPLICA_INDEX_OFFSET is set but POPDIST_NUM_LOCAL_REPLICAS is not; start the "
            "program with poprun, or unset both");
  unsetenv("POPDIST_NUM_TOTAL_REPLICAS");
  EXPECT_THROW(getDeviceId(4), popdist_error);
  Set("POPDIST_NUM_TOTAL_REPLICAS", "4");
  Set("POPDIST_NUM_LOCAL_REPLICAS", "4");
  EXPECT_EQ(getNumInstances(), 1u);
  EXPECT_EQ(getLocalInstanceIndex(), 0u);  // the others have defaults
  EXPECT_EQ(getNumIpusPerReplica(), 1u);
}

TEST_F(ContextTest, BadNumbersAreNamedWithTheirValue) {
  SetReplicas("1", "1", "0");
  for (const char* bad : {"", "0", "-1", "x", "1.5", "4 4", "4294967296"}) {
    Set("POPDIST_NUM_TOTAL_REPLICAS", bad);
    EXPECT_EQ(Error([] { getNumTotalReplicas(); }), std::string("POPDIST_NUM_TOTAL_REPLICAS is '") +
                                                        bad + "', must be a number of 1 or more");
  }
  Set("POPDIST_NUM_IPUS_PER_REPLICA", "two");
  EXPECT_EQ(Error([] { getNumIpusPerReplica(); }),
            "POPDIST_NUM_IPUS_PER_REPLICA is 'two', must be a number of 1 or more");
  EXPECT_THROW(checkNumIpusPerReplica(2), popdist_error);
  Set("POPDIST_LOCAL_INSTANCE_INDEX", "-1");
  EXPECT_EQ(Error([] { getLocalInstanceIndex(); }),
            "POPDIST_LOCAL_INSTANCE_INDEX is '-1', must be a number of 0 or more");
}

TEST_F(ContextTest, ReplicasThatDoNotAddUpAreRefused) {
  SetReplicas("10", "4", "0");
  EXPECT_EQ(Error([] { getNumInstances(); }),
            "POPDIST_NUM_TOTAL_REPLICAS is 10, not a multiple of POPDIST_NUM_LOCAL_REPLICAS, 4");
  SetReplicas("4", "8", "0");
  EXPECT_EQ(Error([] { getNumLocalReplicas(); }),
            "POPDIST_NUM_TOTAL_REPLICAS is 4, not a multiple of POPDIST_NUM_LOCAL_REPLICAS, 8");
  SetReplicas("8", "4", "5");
  EXPECT_EQ(Error([] { getInstanceIndex(); }),
            "POPDIST_REPLICA_INDEX_OFFSET is 5; with 4 local replicas that exceeds the total of 8");
  SetReplicas("8", "4", "4294967295");
  EXPECT_THROW(getReplicaIndexOffset(), popdist_error);
}

TEST_F(ContextTest, DeviceInAGcdIsTheFirstOfItsSize) {
  EXPECT_EQ(getDeviceId(4), 0u);
  SetReplicas("4", "2", "2");
  EXPECT_EQ(getDeviceId(4), 4u);
  EXPECT_EQ(getDeviceId(16, 2), 24u);
  Set("POPDIST_NUM_IPUS_PER_REPLICA", "8");
  EXPECT_EQ(getDeviceId(16), 30u);
  EXPECT_EQ(getDeviceId(16, 1), 16u);  // the argument wins
}

TEST_F(ContextTest, DeviceOfAReconfigurablePartitionIsAChildOfItsParent) {
  SetReplicas("64", "4", "20");
  Set("POPDIST_NODE_DEVICE_ID", "126");
  EXPECT_EQ(getDeviceId(64), 101u);  // quads begin at 96
  SetReplicas("4", "2", "2");
  Set("POPDIST_NODE_DEVICE_ID", "25");  // IPUs 4 to 7 of 16
  EXPECT_EQ(getDeviceId(16), 19u);      // IPUs 6 and 7
  SetReplicas("4", "4", "0");
  Set("POPDIST_NODE_DEVICE_ID", "6");
  EXPECT_EQ(getDeviceId(4), 6u);
}

TEST_F(ContextTest, UnsuitableDevicesAreRefusedByName) {
  SetReplicas("8", "8", "0");
  EXPECT_EQ(Error([] { getDeviceId(4); }), "no device of 8 IPUs for instance 0: there are 4 IPUs");
  EXPECT_EQ(Error([] { getDeviceId(1); }), "no device of 8 IPUs for instance 0: there is 1 IPU");
  SetReplicas("2", "2", "0");
  Set("POPDIST_NODE_DEVICE_ID", "7");
  EXPECT_EQ(Error([] { getDeviceId(4); }).rfind("POPDIST_NODE_DEVICE_ID: ", 0), 0u);
  Set("POPDIST_NODE_DEVICE_ID", "x");
  EXPECT_EQ(Error([] { getDeviceId(4); }),
            "POPDIST_NODE_DEVICE_ID is 'x', must be a number of 0 or more");
}

TEST_F(ContextTest, ChildOutsideTheParentIsRefused) {
  SetReplicas("8", "2", "6");
  Set("POPDIST_NODE_DEVICE_ID", "24");  // IPUs 0 to 3 of 16: two children of two
  EXPECT_EQ(Error([] { getDeviceId(16); }),
            "no device of 2 IPUs for instance 3: POPDIST_NODE_DEVICE_ID 24 has 4 IPUs");
}

TEST_F(ContextTest, NumbersBeyondEveryMachineAreRefused) {
  SetReplicas("4294967295", "4294967295", "0");
  EXPECT_THROW(getDeviceId(16), popdist_error);
  SetReplicas("65536", "65536", "0");
  EXPECT_THROW(getDeviceId(16, 65536), popdist_error);
}

}  // namespace
}  // namespace popdist
