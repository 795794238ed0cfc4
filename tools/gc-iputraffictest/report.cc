#include "tools/gc-iputraffictest/report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/device_test/device_test.h"

namespace vpod::tools {
namespace {

using nlohmann::ordered_json;

std::string Attribute(const telemetry::v1::IpuTelemetry& ipu, const char* name) {
  const auto it = ipu.attributes().find(name);
  return it == ipu.attributes().end() ? "N/A" : it->second;
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

}  // namespace vpod::tools
