// Golden tests against the published samples of spec/gc-tools.md 3 and 4.
#include "tools/gc-info/info.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "device/base/file.h"

namespace vpod::tools {
namespace {

using telemetry::v1::IpuTelemetry;

std::string Golden(const std::string& name) {
  const std::string text = base::ReadFile("tools/gc-info/testdata/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

// IPUs of machines 10.1.5.<first>, <first>+1, …
MonitoredPartition Partition(const std::string& id, uint32_t ipus, uint32_t first) {
  MonitoredPartition partition;
  partition.id = id;
  for (uint32_t i = 0; i < ipus; ++i) {
    IpuTelemetry ipu;
    ipu.set_routing_id(i);
    (*ipu.mutable_attributes())["ipuof host"] = "10.1.5." + std::to_string(first + i / 4);
    (*ipu.mutable_attributes())["board ipu index"] = std::to_string(3 - i % 4);
    partition.ipus.push_back(std::move(ipu));
  }
  return partition;
}

bool HasLine(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST(DeviceListing, OfFourIpusIsThePublishedOne) {
  EXPECT_EQ(DeviceListing({Partition("p1", 4, 10)}), Golden("list_4_ipus.txt"));
}

TEST(DeviceListing, BracketsEndInLineWithTheWidestValue) {
  const std::string text = DeviceListing({Partition("p1", 8, 9)});
  EXPECT_TRUE(HasLine(text, "-+- Id:  [0], target: [Fabric], IPU-M host:  [10.1.5.9], IPU#: [3]"))
      << text;
  EXPECT_TRUE(HasLine(text, "-+- Id:  [7], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [0]"));
  EXPECT_TRUE(HasLine(text, "-+- Id: [14], target: [Multi IPU]"));
  // "DNC Id" is not padded and restarts in each group.
  EXPECT_TRUE(HasLine(text,
                      "-+- Id: [11], target: [Multi IPU]\n"
                      " |--- Id:  [6], DNC Id: [0], IPU-M host: [10.1.5.10], IPU#: [1]\n"
                      " |--- Id:  [7], DNC Id: [1], IPU-M host: [10.1.5.10], IPU#: [0]"))
      << text;
}

TEST(DeviceListing, OfSixteenIpusHasThirtyOneDevices) {
  const std::string text = DeviceListing({Partition("p1", 16, 10)});
  size_t devices = 0;
  for (size_t at = 0; (at = text.find("\n-+- Id:", at)) != std::string::npos; ++at) ++devices;
  EXPECT_EQ(devices, 31u);
  EXPECT_TRUE(HasLine(text, "-+- Id: [30], target: [Multi IPU]"));
  EXPECT_TRUE(HasLine(text, " |--- Id: [15], DNC Id: [15], IPU-M host: [10.1.5.13], IPU#: [0]"));
}

TEST(DeviceListing, OfSeveralPartitionsHasSingleIpusOnlyAndIdsGoOn) {
  MonitoredPartition second = Partition("p2", 1, 12);
  second.active = false;
  EXPECT_EQ(DeviceListing({Partition("p1", 4, 10), second}), R"(Graphcore device listing:
Partition: p1 [active]
-+- Id: [0], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [3]
-+- Id: [1], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [2]
-+- Id: [2], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [1]
-+- Id: [3], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [0]
Partition: p2
-+- Id: [4], target: [Fabric], IPU-M host: [10.1.5.12], IPU#: [3]
)");
}

TEST(DeviceListing, SilentIpusKeepTheirIdsAndHideTheGroups) {
  MonitoredPartition partition = Partition("p1", 4, 10), second = Partition("p2", 1, 12);
  partition.ipus.erase(partition.ipus.begin() + 1);
  partition.silent.emplace_back().set_routing_id(1);
  second.active = false;
  const std::string listing = R"(Graphcore device listing:
Partition: p1 [active]
-+- Id: [0], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [3]
-+- Id: [2], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [1]
-+- Id: [3], target: [Fabric], IPU-M host: [10.1.5.10], IPU#: [0]
)";
  EXPECT_EQ(DeviceListing({partition}), listing);
  EXPECT_EQ(DeviceListing({partition, second}), listing + R"(Partition: p2
-+- Id: [4], target: [Fabric], IPU-M host: [10.1.5.12], IPU#: [3]
)");
  const auto json = nlohmann::json::parse(DeviceListingJson({partition, second}));
  EXPECT_EQ(json["partitions"][0]["devices"].size(), 3u);
  EXPECT_EQ(json["partitions"][0]["devices"][1]["id"], "2");
  EXPECT_EQ(json["partitions"][1]["devices"][0]["id"], "4");
}

// Attributes as in the published dump.
MonitoredPartition PublishedDevice(uint32_t ipus) {
  MonitoredPartition partition = Partition("p1", ipus, 10);
  std::istringstream lines(Golden("device_info.txt"));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t colon = line.find(": ");
    const std::string key = line.substr(2, colon - 2);
    if (key == "id" || key == "target") continue;
    for (IpuTelemetry& ipu : partition.ipus)
      (*ipu.mutable_attributes())[key] = line.substr(colon + 2);
  }
  return partition;
}

TEST(DeviceInfo, IsThePublishedDump) {
  const auto text = DeviceInfo(PublishedDevice(1), 0);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, Golden("device_info.txt"));
}

TEST(DeviceInfo, OfAGroupShowsItsFirstIpuUnderItsOwnId) {
  MonitoredPartition partition = Partition("p1", 4, 10);
  const auto text = DeviceInfo(partition, 5);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            "Device Info:\n  id: 5\n  target: Multi IPU\n  board ipu index: 1\n"
            "  ipuof host: 10.1.5.10\n");
}

TEST(DeviceInfo, UnknownDeviceIsRefused) {
  const auto text = DeviceInfo(Partition("p1", 4, 10), 7);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kOutOfRange) << text.status();
}

TEST(DeviceListingJsonTest, HasWhatTheTextHas) {
  EXPECT_EQ(DeviceListingJson({Partition("p1", 2, 10)}), Golden("list_2_ipus.json"));
}

TEST(DeviceInfoJsonTest, IsOneObjectOfStrings) {
  EXPECT_EQ(*DeviceInfoJson(Partition("p1", 2, 10), 2),
            "{\n \"id\": \"2\",\n \"target\": \"Multi IPU\",\n \"board ipu index\": \"3\",\n"
            " \"ipuof host\": \"10.1.5.10\",\n \"device_id\": \"2\",\n"
            " \"ipum_host\": \"10.1.5.10\",\n \"pcie_id\": \"3\"\n}\n");
  EXPECT_EQ(DeviceInfoJson(Partition("p1", 2, 10), 3).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace vpod::tools
