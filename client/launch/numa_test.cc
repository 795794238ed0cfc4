#include "client/launch/numa.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace vpod::launch {
namespace {

namespace fs = std::filesystem;

class NumaTest : public testing::Test {
 protected:
  NumaTest()
      : directory_(fs::path(testing::TempDir()) /
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~NumaTest() override { fs::remove_all(directory_); }

  void Node(int id, const std::string& cpus) const {
    fs::create_directories(directory_ / ("node" + std::to_string(id)));
    std::ofstream(directory_ / ("node" + std::to_string(id)) / "cpulist") << cpus << "\n";
  }
  // Nodes of each instance on a host of `nodes` nodes: "0 0 1 1", "0,1 2,3".
  static std::string Shares(uint32_t nodes, uint32_t instances) {
    std::vector<NumaNode> all(nodes);
    for (uint32_t i = 0; i < nodes; ++i) all[i].id = i;
    std::string text;
    for (uint32_t index = 0; index < instances; ++index) {
      if (index > 0) text += " ";
      std::string separator;
      for (const NumaNode& node : ShareOfNodes(all, index, instances)) {
        text += separator + std::to_string(node.id);
        separator = ",";
      }
    }
    return text;
  }

  fs::path directory_;
};

TEST_F(NumaTest, NodesAreReadInOrderAndThoseWithoutCpusAreLeftOut) {
  Node(10, "20-21");
  Node(2, "");  // memory only
  Node(1, "4-7,12-13");
  Node(0, "0-3,8");
  fs::create_directories(directory_ / "nodes");
  std::ofstream(directory_ / "online") << "0-2\n";
  const auto nodes = ReadNumaNodes(directory_.string());
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].id, 0u);
  EXPECT_EQ(nodes[0].cpus, std::vector<uint32_t>({0, 1, 2, 3, 8}));
  EXPECT_EQ(nodes[1].cpus, std::vector<uint32_t>({4, 5, 6, 7, 12, 13}));
  EXPECT_EQ(nodes[2].id, 10u);
  EXPECT_TRUE(ReadNumaNodes((directory_ / "missing").string()).empty());
}

TEST_F(NumaTest, InstancesDivideTheNodesOfTheirHost) {
  EXPECT_EQ(Shares(2, 2), "0 1");
  EXPECT_EQ(Shares(2, 4), "0 0 1 1");
  EXPECT_EQ(Shares(2, 3), "0 0 1");
  EXPECT_EQ(Shares(8, 2), "0,1,2,3 4,5,6,7");
  EXPECT_EQ(Shares(8, 3), "0,1 2,3,4 5,6,7");
  EXPECT_EQ(Shares(4, 1), "0,1,2,3");
  EXPECT_EQ(Shares(1, 3), "0 0 0");
}

TEST_F(NumaTest, BindsToTheCpusOfTheNodes) {
  // On a thread of its own, since there is no way back for memory.
  std::thread([] {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    uint32_t cpu = 0;
    while (!CPU_ISSET(cpu, &before)) ++cpu;
    const auto nodes = ReadNumaNodes();
    if (nodes.empty()) GTEST_SKIP() << "the kernel shows no NUMA nodes";
    const absl::Status bound = BindTo({{nodes[0].id, {cpu}}});
    if (!bound.ok()) GTEST_SKIP() << "not permitted here: " << bound;
    cpu_set_t after;
    ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_EQ(CPU_COUNT(&after), 1);
    EXPECT_TRUE(CPU_ISSET(cpu, &after));
  }).join();
}

TEST_F(NumaTest, NodesThatAreNotThereAreRefused) {
  std::thread([] {
    EXPECT_FALSE(BindTo({{0, {CPU_SETSIZE - 1}}}).ok());  // such a CPU nobody has here
    EXPECT_FALSE(BindTo({}).ok());
  }).join();
}

}  // namespace
}  // namespace vpod::launch
