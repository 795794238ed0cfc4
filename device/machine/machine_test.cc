#include "device/machine/machine.h"

#include <gtest/gtest.h>

namespace vpod::machine {
namespace {

Machine MakeMachine() {
  return Machine({0, "127.10.0.1", 8080, "127.11.0.1"}, *arch::FindMachineType("m2000"));
}

// The keys of the M2000 sample in spec/gc-tools.md 4, without id and target.
TEST(MachineTest, AttributesHaveAllKeysOfTheSample) {
  Machine machine = MakeMachine();
  const PartitionFacts partition{"p1", 0, "DNC", 1, "c2-compatible", true};
  const auto all = machine.Attributes(3, &partition, nullptr);
  for (const char* key : {"average board temp",
                          "average die temp",
                          "board ipu index",
                          "board serial number",
                          "board type",
                          "clock",
                          "config domain",
                          "driver version",
                          "firmware major version",
                          "firmware minor version",
                          "firmware patch version",
                          "firmware version",
                          "gateway software version",
                          "graph streaming",
                          "hexoatt active size (bytes)",
                          "hexoatt total size (bytes)",
                          "hexopt active size (bytes)",
                          "hexopt total size (bytes)",
                          "host link correctable error count",
                          "ipu architecture",
                          "ipu error state",
                          "ipu power",
                          "ipu utilisation",
                          "ipu utilisation (session)",
                          "ipuof host",
                          "ipuof partition id",
                          "ipuof routing id",
                          "ipuof routing type",
                          "ipuof server version",
                          "link correctable error count",
                          "link speed",
                          "link width",
                          "number of replicas",
                          "partition sync type",
                          "pci id",
                          "pcie physical slot",
                          "reconfigurable partition",
                          "remote buffers supported",
                          "total board power"}) {
    EXPECT_TRUE(all.count(key)) << key;
  }
  EXPECT_EQ(all.at("board ipu index"), "3");
  EXPECT_EQ(all.at("reconfigurable partition"), "true");
}

TEST(MachineTest, SensorsShowOnlyWhileAMonitoredProgramIsAttached) {
  Machine machine = MakeMachine();
  EXPECT_EQ(machine.Attributes(0, nullptr, nullptr).at("ipu power"), "N/A");
  Holder holder{"train", "alice", 4711, 0, false};
  EXPECT_EQ(machine.Attributes(0, nullptr, &holder).at("total board power"), "N/A");
  holder.monitoring = true;
  EXPECT_EQ(machine.Attributes(0, nullptr, &holder).at("ipu power"), "46.0 W");
  EXPECT_EQ(machine.Attributes(0, nullptr, &holder).at("total board power"), "92.0 W");
}

TEST(MachineTest, ProcessKeysExistOnlyWhileAttached) {
  Machine machine = MakeMachine();
  const Holder holder{"train", "alice", 4711, 1637621208, false};
  const auto all = machine.Attributes(0, nullptr, &holder);
  EXPECT_EQ(all.at("user process id"), "4711");
  EXPECT_EQ(all.at("process start time"), "20211122T224648Z");
  EXPECT_FALSE(machine.Attributes(0, nullptr, nullptr).count("user process id"));
}

TEST(MachineTest, BoardsPairIpusThreeAndTwo) {
  Machine machine = MakeMachine();
  const auto serial = [&](uint32_t ipu) {
    return machine.Attributes(ipu, nullptr, nullptr).at("board serial number");
  };
  EXPECT_EQ(serial(3), serial(2));
  EXPECT_EQ(serial(1), serial(0));
  EXPECT_NE(serial(3), serial(0));
}

}  // namespace
}  // namespace vpod::machine
