// Tests of the output of gc-info's exclusive commands, and of their refusals.
#include "tools/gc-info/status.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vpod::tools {
namespace {

MonitoredPartition FourIpus() {
  MonitoredPartition partition;
  partition.id = "p1";
  for (uint32_t i = 0; i < 4; ++i) {
    telemetry::v1::IpuTelemetry ipu;
    ipu.set_routing_id(i);
    auto& attributes = *ipu.mutable_attributes();
    attributes["link speed"] = "16.0 GT/s";
    attributes["link width"] = "8";
    attributes["link correctable error count"] = "7";
    attributes["link correctable error count (session)"] = "2";
    attributes["pci id"] = std::to_string(3 - i);
    partition.ipus.push_back(ipu);
  }
  return partition;
}

// Published rows (spec/gc-tools.md 3.3), and 23 rows of 64 tiles.
TEST(TileOverview, IsThePublishedMap) {
  const std::string text = *TileOverview(FourIpus(), 0);
  EXPECT_EQ(text.substr(0, text.find("\n  2")),
            "      0    1    2    3    4    5    6    7    8    9   10   11   12   13   14   15\n"
            "  0 xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx:: xx::\n"
            "  1 :::: :::: :::: :::: :::: :::: :::: :::: :::: :::: :::: :::: :::: :::: :::: ::::");
  EXPECT_NE(text.find("\n 22 ::::"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 24);
  EXPECT_EQ(std::count(text.begin(), text.end(), ':') + std::count(text.begin(), text.end(), 'x'),
            1472);
}

TEST(TileOverview, ShowsTheExceptionOfAnIpuWithAnError) {
  MonitoredPartition partition = FourIpus();
  (*partition.ipus[1].mutable_attributes())["ipu error state"] = "IPUSOFTERR";
  const std::string text = *TileOverview(partition, 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'E'), 1472);
  EXPECT_EQ(*TileOverview(partition, 0), *TileOverview(FourIpus(), 0));
  EXPECT_EQ(TileOverview(partition, 7).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(LinkStatusTest, NamesTheIpuInEachLine) {
  EXPECT_EQ(*LinkStatus(FourIpus(), 5),
            "IPUID 2 link speed: 16.0 GT/s\n"
            "IPUID 2 link width: 8\n"
            "IPUID 2 link correctable error count: 7\n"
            "IPUID 2 link correctable error count (session): 2\n");
  EXPECT_EQ(*PciStatus(FourIpus(), 1), "pci id: 2\n");
  EXPECT_EQ(LinkStatus(FourIpus(), 7).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(CheckIdleTest, NamesTheHolderOfAnyIpuOfTheDevice) {
  MonitoredPartition partition = FourIpus();
  partition.ipus[3].set_attached(true);
  partition.ipus[3].mutable_process()->set_pid(81816);
  partition.ipus[3].mutable_process()->set_host("host-1");
  partition.ipus[3].mutable_process()->set_user("alice");
  partition.ipus[3].mutable_process()->set_executable("train");
  partition.ipus[3].mutable_process()->set_start_time_unix(1000);
  EXPECT_TRUE(CheckIdle(partition, 0, 1241).ok());
  EXPECT_TRUE(CheckIdle(partition, 4, 1241).ok());
  for (uint32_t device : {3, 5, 6}) {
    EXPECT_EQ(CheckIdle(partition, device, 1241).message(),
              "device " + std::to_string(device) +
                  " is in use by process 81816 (train) of alice on host-1, started 4m1s ago; wait "
                  "until it detaches; run 'gc-monitor' to see who uses which IPUs");
  }
  partition.ipus[3].mutable_process()->set_pid_namespace("pid:[1]");
  EXPECT_NE(CheckIdle(partition, 3, 1241).message().find("81816 of another PID namespace (train)"),
            std::string::npos);
}

TEST(CheckTileTest, TilesAndContexts) {
  for (const char* tile : {"0", "1471", "-"}) EXPECT_TRUE(CheckTile(tile).ok()) << tile;
  for (const char* tile : {"1472", "-1", "x", ""}) EXPECT_FALSE(CheckTile(tile).ok()) << tile;
  for (const char* context : {"SU", "W0", "W5", "0", "6"})
    EXPECT_TRUE(CheckContext(context).ok()) << context;
  for (const char* context : {"W6", "W", "su", "7", ""})
    EXPECT_FALSE(CheckContext(context).ok()) << context;
}

}  // namespace
}  // namespace vpod::tools
