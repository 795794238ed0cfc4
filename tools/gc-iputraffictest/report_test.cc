#include "tools/gc-iputraffictest/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vpod::tools {
namespace {

IpuTrafficReport Report() {
  IpuTrafficReport report;
  report.device0 = "2";
  report.device1 = "3";
  report.traffic.bytes = 4'096'000ull * 1024;
  report.traffic.seconds = 0.08;
  for (uint32_t id : {2, 3}) {
    telemetry::v1::IpuTelemetry& ipu = report.ipus.emplace_back();
    ipu.set_routing_id(id);
    auto& all = *ipu.mutable_attributes();
    all["board serial number"] = "0100.0001.8204521";
    all["board ipu index"] = id == 2 ? "1" : "0";
    all["board type"] = "M2000";
    all["ipu power"] = "52.5 W";
    all["total board power"] = "105.0 W";
  }
  return report;
}

TEST(IpuTrafficReportTest, JsonHasTheKeysOfTheRealTool) {
  const auto json = nlohmann::json::parse(IpuTrafficJson(Report()))["tile_to_tile"];
  EXPECT_EQ(json["device0"], "2");
  EXPECT_EQ(json["device1"], "3");
  EXPECT_EQ(json["kbytes_transferred"], "4096000");
  EXPECT_EQ(json["gbytes_transferred"], "3.90625");
  EXPECT_EQ(json["errors"], "0");
  EXPECT_EQ(json["power"], "105.0 W");
  const auto board = json["boards"]["0100.0001.8204521"];
  EXPECT_EQ(board["type"], "M2000");
  EXPECT_EQ(board["board_power"], "105.0 W");
  EXPECT_EQ(board["device_ids"], (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(board["power_sensors"]["XDPE132G5C:0"], "52.5 W");
  EXPECT_EQ(board["power_sensors"]["XDPE132G5C:1"], "52.5 W");
  EXPECT_FALSE(json.contains("wall_gbps"));
}

TEST(IpuTrafficReportTest, TextHasALineAValue) {
  IpuTrafficReport report = Report();
  report.wall = true;
  report.traffic.wall_seconds = 2;
  report.ipus[0].mutable_attributes()->erase("ipu power");
  EXPECT_EQ(IpuTrafficText(report),
            "device0: 2\ndevice1: 3\nduration_sec: 0.080000000000000002\n"
            "kbytes_transferred: 4096000\ngbytes_transferred: 3.90625\ngbps: 419.43040000000002\n"
            "errors: 0\npower: N/A\nwall_duration_sec: 2\nwall_gbps: 16.777215999999999\n");
}

}  // namespace
}  // namespace vpod::tools
