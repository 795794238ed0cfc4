#include "tools/gc-iputraffictest/report.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ipuof/attributes.h"
#include "tools/device_check/device_check.h"

namespace vpod::tools {
namespace {

using ipuof::Attribute;
using nlohmann::ordered_json;
using telemetry::v1::LinkTelemetry;

std::string NameOf(const LinkTelemetry& link) {
  return absl::StrCat(link.host(), " IPU", link.pcie_id(), ".", link.name());
}

// Boards by serial number. A board's two regulators feed one IPU each.
ordered_json Boards(const std::vector<telemetry::v1::IpuTelemetry>& ipus) {
  ordered_json boards = ordered_json::object();
  for (const auto& ipu : ipus) {
    ordered_json& board = boards[Attribute(ipu, "board serial number")];
    const std::string sensor = absl::StrCat(
        "XDPE132G5C:",
        Attribute(ipu, "board ipu index") == "1" || Attribute(ipu, "board ipu index") == "3" ? 1
                                                                                             : 0);
    board["power_sensors"][sensor] = Attribute(ipu, "ipu power");
    board["device_ids"].push_back(absl::StrCat(ipu.routing_id()));
    board["type"] = Attribute(ipu, "board type");
    board["board_power"] = Attribute(ipu, "total board power");
  }
  return boards;
}

std::string TotalPower(const std::vector<telemetry::v1::IpuTelemetry>& ipus) {
  double total = 0;
  for (const auto& ipu : ipus) {
    const std::string text = Attribute(ipu, "ipu power");
    double watts = 0;
    if (!absl::SimpleAtod(text.substr(0, text.find(' ')), &watts)) return "N/A";
    total += watts;
  }
  return absl::StrFormat("%.1f W", total);
}

Rows Values(const IpuTrafficReport& report) {
  const LinkTraffic& traffic = report.traffic;
  const double kbytes = static_cast<double>(traffic.bytes) / 1024;
  Rows rows;
  if (!report.device0.empty()) rows.emplace_back("device0", report.device0);
  if (!report.device1.empty()) rows.emplace_back("device1", report.device1);
  rows.emplace_back("duration_sec", AllDigits(traffic.seconds));
  rows.emplace_back("kbytes_transferred", AllDigits(kbytes));
  rows.emplace_back("gbytes_transferred", AllDigits(kbytes / (1024 * 1024)));
  rows.emplace_back("gbps", AllDigits(traffic.gbps()));
  rows.emplace_back("errors", absl::StrCat(traffic.errors));
  rows.emplace_back("power", TotalPower(report.ipus));
  if (report.wall) {
    rows.emplace_back("wall_duration_sec", AllDigits(traffic.wall_seconds));
    rows.emplace_back("wall_gbps", AllDigits(static_cast<double>(traffic.bytes) * 8 /
                                             traffic.wall_seconds / 1e9));
  }
  return rows;
}

}  // namespace

std::string IpuTrafficJson(const IpuTrafficReport& report) {
  ordered_json test = {{"boards", Boards(report.ipus)}};
  for (const auto& [key, value] : Values(report)) test[key] = value;
  return ordered_json{{"tile_to_tile", test}}.dump(1) + "\n";
}

std::string IpuTrafficText(const IpuTrafficReport& report) {
  std::string text;
  for (const auto& [key, value] : Values(report)) absl::StrAppend(&text, key, ": ", value, "\n");
  return text;
}

std::vector<std::string> IdleLinks(const vipuuser::PartitionConfig& gcd,
                                   const std::vector<LinkTelemetry>& before,
                                   const std::vector<LinkTelemetry>& after) {
  std::set<std::pair<std::string, uint32_t>> ipus;  // by data-plane address
  for (const auto& device : gcd.devices()) ipus.emplace(device.ip(), device.pcie_id());
  std::map<std::string, std::string> data_ip_of;
  std::map<std::string, uint64_t> sent_before;
  for (const LinkTelemetry& link : before) {
    data_ip_of[link.host()] = link.data_ip();
    sent_before[NameOf(link)] = link.tx_bytes();
  }
  std::vector<std::string> idle;
  for (const LinkTelemetry& link : after) {
    if (link.kind() != "IPU-Link" || !link.routed() ||
        !ipus.contains({link.data_ip(), link.pcie_id()}) ||
        !ipus.contains({data_ip_of[link.peer_host()], link.peer_pcie_id()})) {
      continue;
    }
    if (link.tx_bytes() == sent_before[NameOf(link)]) idle.push_back(NameOf(link));
  }
  return idle;
}

}  // namespace vpod::tools
