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

TEST(IpuTrafficReportTest, LinksThatSentNothingAreNamed) {
  vipuuser::PartitionConfig gcd;
  for (uint32_t pcie_id : {3, 2}) {
    gcd.add_devices()->set_ip("127.11.0.1");
    gcd.mutable_devices()->rbegin()->set_pcie_id(pcie_id);
  }
  const auto link = [](uint32_t from, uint32_t to, const char* name, uint64_t tx) {
    telemetry::v1::LinkTelemetry link;
    link.set_kind("IPU-Link");
    link.set_host("127.10.0.1");
    link.set_data_ip("127.11.0.1");
    link.set_peer_host("127.10.0.1");
    link.set_pcie_id(from);
    link.set_peer_pcie_id(to);
    link.set_name(name);
    link.set_tx_bytes(tx);
    link.set_routed(true);
    return link;
  };
  auto cross = link(3, 2, "NLC_E_2A", 7);
  cross.set_routed(false);  // as in a partition of one rung
  const std::vector<telemetry::v1::LinkTelemetry> before = {
      link(3, 2, "NLC_E_0A", 7), link(2, 3, "NLC_W_0A", 7), link(3, 1, "NLC_W_0B", 7), cross};
  EXPECT_EQ(IdleLinks(gcd, before, before),
            (std::vector<std::string>{"127.10.0.1 IPU3.NLC_E_0A", "127.10.0.1 IPU2.NLC_W_0A"}));
  const std::vector<telemetry::v1::LinkTelemetry> after = {
      link(3, 2, "NLC_E_0A", 8), link(2, 3, "NLC_W_0A", 7), link(3, 1, "NLC_W_0B", 7), cross};
  EXPECT_EQ(IdleLinks(gcd, before, after), (std::vector<std::string>{"127.10.0.1 IPU2.NLC_W_0A"}));
}

}  // namespace
}  // namespace vpod::tools
