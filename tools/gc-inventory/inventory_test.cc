// Layouts of gc-inventory.
#include "tools/gc-inventory/inventory.h"

#include <gtest/gtest.h>

#include "device/base/file.h"

namespace vpod::tools {
namespace {

std::string Golden(const std::string& name) {
  const std::string text = base::ReadFile("tools/gc-inventory/testdata/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

std::vector<DeviceAttributes> TwoIpus() {
  MonitoredPartition partition;
  partition.id = "p1";
  for (uint32_t i = 0; i < 2; ++i) {
    telemetry::v1::IpuTelemetry ipu;
    ipu.set_routing_id(i);
    auto& attributes = *ipu.mutable_attributes();
    attributes["board ipu index"] = std::to_string(3 - i);
    attributes["ipuof partition id"] = "p1";
    attributes["remote buffers supported"] = "1";
    partition.ipus.push_back(ipu);
  }
  const auto devices = Inventory(partition);
  EXPECT_TRUE(devices.ok()) << devices.status();
  return *devices;
}

TEST(InventoryTest, TextHasSingleIpusBeforeGroups) {
  EXPECT_EQ(InventoryText(TwoIpus()), Golden("two_ipus.txt"));
}

TEST(InventoryTest, JsonHasBothNamesOfRemoteBuffers) {
  EXPECT_EQ(InventoryJson(TwoIpus()), Golden("two_ipus.json"));
}

}  // namespace
}  // namespace vpod::tools
