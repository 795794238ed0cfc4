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
  EXPECT_EQ(machine.SensorAttributes(0).at("ipu power"), "46.0 W");
  EXPECT_EQ(machine.SensorAttributes(0).size(), 4u);
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

TEST(MachineTest, FaultsShowInTheAttributesUntilReset) {
  Machine machine = MakeMachine();
  const Holder monitored{"python", "alice", 1, 0, true};
  machine.ipu(2).faults.SetError("IPUSOFTERR", /*simulated=*/false);
  machine.ipu(1).faults.SetOverTemperature();
  machine.ipu(0).faults.SetParityError();
  EXPECT_EQ(machine.Attributes(2, nullptr, nullptr)["ipu error state"], "IPUSOFTERR");
  EXPECT_EQ(machine.Attributes(0, nullptr, nullptr)["ipu error state"], "memory parity error");
  auto hot = machine.Attributes(1, nullptr, &monitored);
  EXPECT_EQ(hot["average die temp"], "105.0 C");
  EXPECT_EQ(hot["average board temp"], "85.0 C");
  EXPECT_EQ(hot["clock"], "665MHz");
  EXPECT_EQ(hot["ipu error state"], "no errors");
  // A parity error stays until tile memory is initialised.
  machine.ipu(0).faults.SetError("IPUSOFTERR", /*simulated=*/false);
  machine.ipu(0).faults.Reset(/*initialise_parity=*/false);
  EXPECT_EQ(machine.Attributes(0, nullptr, nullptr)["ipu error state"], "memory parity error");
  machine.Reset();
  EXPECT_EQ(machine.ipu(0).faults.parity_errors(), 1u);  // a counter for monitoring: it only rises
  for (uint32_t ipu = 0; ipu < 4; ++ipu) {
    auto all = machine.Attributes(ipu, nullptr, &monitored);
    EXPECT_EQ(all["ipu error state"], "no errors");
    EXPECT_EQ(all["clock"], "1330MHz");
    EXPECT_NE(all["average die temp"], "105.0 C");
  }
}

TEST(MachineTest, LinkErrorsOfASessionCountFromTheAttach) {
  Machine machine = MakeMachine();
  machine.links().SetFault(35, {.correctable_errors_per_gb = 1});  // of IPU 3
  machine.links().Count({{35, 2'000'000'000, 0}});
  machine.BeginSession(3);
  machine.links().Count({{35, 0, 5'000'000'000}});
  auto all = machine.Attributes(3, nullptr, nullptr);
  EXPECT_EQ(all["link correctable error count"], "7");
  EXPECT_EQ(all["link correctable error count (session)"], "5");
  EXPECT_EQ(machine.Attributes(2, nullptr, nullptr)["link correctable error count"], "0");
}

}  // namespace
}  // namespace vpod::machine
