#include "tools/gc-monitor/monitor.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/ipuof/attributes.h"
#include "client/render/table.h"

namespace vpod::tools {
namespace {

using ipuof::Attribute;
using render::Centre;
using telemetry::v1::IpuTelemetry;
using Json = nlohmann::ordered_json;

std::string Row(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line = "|";
  for (size_t i = 0; i < cells.size(); ++i)
    absl::StrAppend(&line, Centre(cells[i], widths[i]), "|");
  return line + "\n";
}

std::string Rule(const std::vector<size_t>& widths) {
  std::string line = "+";
  for (size_t width : widths) absl::StrAppend(&line, std::string(width, '-'), "+");
  return line + "\n";
}

size_t Inside(const std::vector<size_t>& widths, size_t first, size_t count) {
  size_t total = count - 1;
  for (size_t i = first; i < first + count; ++i) total += widths[i];
  return total;
}

std::string Title(const MonitoredPartition& partition) {
  return absl::StrCat("Partition: ", partition.id,
                      partition.show_gcd ? absl::StrCat(" (gcd:", partition.gcd, ")") : "",
                      partition.mark(), " has ", partition.num_ipus(),
                      partition.reconfigurable ? " reconfigurable IPUs" : " IPUs");
}

// "113.7 W" as it is; "N/A" when the program does not sample.
std::string BoardPower(const IpuTelemetry& ipu) { return Attribute(ipu, "total board power"); }

// Rows grouped by board: machines ascend, board 0001 (IPU# 1 and 0) before 0002, ids ascend within
// a board.
std::vector<std::vector<const IpuTelemetry*>> Boards(const std::vector<const IpuTelemetry*>& ipus) {
  std::map<std::pair<std::string, std::string>, std::vector<const IpuTelemetry*>> boards;
  std::vector<std::string> machines;  // in order of their first device
  for (const IpuTelemetry* ipu : ipus) {
    const std::string host = Attribute(*ipu, "ipuof host");
    if (std::find(machines.begin(), machines.end(), host) == machines.end())
      machines.push_back(host);
    boards[{host, Attribute(*ipu, "board serial number")}].push_back(ipu);
  }
  std::vector<std::vector<const IpuTelemetry*>> ordered;
  for (const std::string& machine : machines) {
    for (auto& [key, members] : boards) {
      if (key.first == machine) ordered.push_back(members);
    }
  }
  return ordered;
}

Json IpuJson(const IpuTelemetry& ipu, int64_t now) {
  Json json;
  json["ID"] = absl::StrCat(ipu.routing_id());
  json["IPU#"] = Attribute(ipu, "board ipu index");
  json["Serial"] = Attribute(ipu, "board serial number");
  json["PCIe ID"] = Attribute(ipu, "pci id");
  json["Routing"] = Attribute(ipu, "ipuof routing type");
  json["GCD"] = absl::StrCat(ipu.gcd_id());
  json["device_id"] = json["ID"];
  json["pcie_id"] = json["PCIe ID"];
  json["Clock"] = Attribute(ipu, "clock");
  json["IPU temp"] = Attribute(ipu, "average die temp");
  json["Board temp"] = Attribute(ipu, "average board temp");
  json["Board power"] = BoardPower(ipu);
  json["IPU utilisation"] = Attribute(ipu, "ipu utilisation");
  json["IPU utilisation session"] = Attribute(ipu, "ipu utilisation (session)");
  if (!ipu.releasing().empty()) json["Releasing"] = ipu.releasing();
  if (ipu.attached()) {
    json["PID"] = absl::StrCat(ipu.process().pid());
    const std::string other = Attribute(ipu, ipuof::kProcessNamespace);
    if (!other.empty()) json["PID namespace"] = other;
    json["Command"] = ipu.process().executable();
    json["Time"] = render::ShortDuration(now - ipu.process().start_time_unix());
    json["User"] = ipu.process().user();
    json["Application host"] = ipu.process().host();
    json["started_at"] = render::UtcTime(ipu.process().start_time_unix());
  }
  return json;
}

}  // namespace

std::string DeviceTable(const MonitoredPartition& partition) {
  size_t type_width = 7;
  for (const auto& ipu : partition.ipus)
    type_width = std::max(type_width, Attribute(ipu, "board type").size());
  const std::vector<size_t> widths = {13, 20, 8, 14, 10, type_width, 4, 6, 7};
  const std::vector<size_t> title_widths = {15, Inside(widths, 0, widths.size()) - 16};
  std::string text =
      Rule(title_widths) + Row({"gc-monitor", Title(partition)}, title_widths) + Rule(widths);
  text += Row(
      {"IPU-M", "Serial", "IPU-M SW", "Server version", "ICU FW", "Type", "ID", "IPU#", "Routing"},
      widths);
  text += Rule(widths);
  std::string machine;
  for (const auto& ipu : partition.ipus) {
    const std::string host = Attribute(ipu, "ipuof host");
    if (!machine.empty() && machine != host) text += Rule(widths);
    machine = host;
    text += Row(
        {host, Attribute(ipu, "board serial number"), Attribute(ipu, "gateway software version"),
         Attribute(ipu, "ipuof server version"), Attribute(ipu, "firmware version"),
         Attribute(ipu, "board type"), absl::StrCat(ipu.routing_id()),
         Attribute(ipu, "board ipu index"), Attribute(ipu, "ipuof routing type")},
        widths);
  }
  return text + Rule(widths);
}

std::string ProcessTables(const MonitoredPartition& partition, size_t terminal_columns,
                          int64_t now) {
  std::vector<const IpuTelemetry*> visible, elsewhere;
  for (const auto& ipu : partition.ipus) {
    if (!ipu.attached()) continue;
    (Attribute(ipu, ipuof::kProcessNamespace).empty() ? visible : elsewhere).push_back(&ipu);
  }
  std::string text;
  // Lines of their own: a reason is longer than any cell.
  for (const auto& ipu : partition.ipus) {
    if (ipu.releasing().empty()) continue;
    absl::StrAppend(&text, "IPU ", ipu.routing_id(), " in partition ", partition.id,
                    " is RELEASING: ", ipu.releasing(), "\n");
  }
  if (visible.empty() && elsewhere.empty()) {
    const std::vector<size_t> box = {98};
    return Rule(box) +
           Row({absl::StrCat("No attached processes in partition ", partition.id)}, box) +
           Rule(box) + text;
  }
  const std::string releasing = std::move(text);
  text.clear();
  if (!visible.empty()) {
    const size_t command = terminal_columns == 0   ? 41
                           : terminal_columns < 85 ? 9
                                                   : terminal_columns - 76;
    const std::vector<size_t> widths = {8, command, 8, 12, 4, 10, 8, 8, 8};
    const std::vector<size_t> groups = {Inside(widths, 0, 4), Inside(widths, 4, 3),
                                        Inside(widths, 7, 2)};
    text += Rule(groups);
    text += Row({absl::StrCat("Attached processes in partition ", partition.id), "IPU", "Board"},
                groups);
    text += Rule(widths);
    text += Row({"PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Temp", "Power"}, widths);
    text += Rule(widths);
    for (const auto& board : Boards(visible)) {
      for (size_t i = 0; i < board.size(); ++i) {
        const IpuTelemetry& ipu = *board[i];
        text +=
            Row({absl::StrCat(ipu.process().pid()), ipu.process().executable(),
                 render::ShortDuration(now - ipu.process().start_time_unix()), ipu.process().user(),
                 absl::StrCat(ipu.routing_id()), Attribute(ipu, "clock"),
                 Attribute(ipu, "average die temp"),
                 i == 0 ? Attribute(ipu, "average board temp") : "", i == 0 ? BoardPower(ipu) : ""},
                widths);
      }
      text += Rule(widths);
    }
  }
  if (!elsewhere.empty()) {
    const std::vector<size_t> widths = {4, 30, 14, 11, 11, 11};
    const std::vector<size_t> groups = {Inside(widths, 0, 4), Inside(widths, 4, 2)};
    text += Rule(groups);
    text +=
        Row({absl::StrCat("IPUs in ", partition.id, " attached from other namespaces"), "Board"},
            groups);
    text += Rule(widths) +
            Row({"ID", "Application host", "Clock", "Temp", "Temp", "Power"}, widths) +
            Rule(widths);
    for (const auto& board : Boards(elsewhere)) {
      for (size_t i = 0; i < board.size(); ++i) {
        const IpuTelemetry& ipu = *board[i];
        text +=
            Row({absl::StrCat(ipu.routing_id()), ipu.process().host(), Attribute(ipu, "clock"),
                 Attribute(ipu, "average die temp"),
                 i == 0 ? Attribute(ipu, "average board temp") : "", i == 0 ? BoardPower(ipu) : ""},
                widths);
      }
      text += Rule(widths);
    }
  }
  return text + releasing;
}

std::string MonitorJson(const std::vector<MonitoredPartition>& partitions, int64_t now) {
  Json cards = Json::array();
  for (const auto& partition : partitions) {
    std::string machine;
    for (const auto& ipu : partition.ipus) {
      const std::string host = Attribute(ipu, "ipuof host");
      if (cards.empty() || host != machine || cards.back()["Partition"] != partition.id) {
        cards.push_back({{"IPU-M", host},
                         {"Type", Attribute(ipu, "board type")},
                         {"IPU-M SW", Attribute(ipu, "gateway software version")},
                         {"Server version", Attribute(ipu, "ipuof server version")},
                         {"ICU FW", Attribute(ipu, "firmware version")},
                         {"Partition", partition.id},
                         {"Partition active", partition.is_active() ? "true" : "false"},
                         {"ipum_host", host},
                         {"partition_id", partition.id},
                         {"ipus", Json::array()}});
        machine = host;
      }
      cards.back()["ipus"].push_back(IpuJson(ipu, now));
    }
  }
  return Json({{"cards", cards}}).dump(1) + "\n";
}

std::string MonitorErrorJson(const std::string& what) {
  return absl::StrCat("{\"cards\": [], \"error\": ",
                      Json(what).dump(-1, ' ', false, Json::error_handler_t::replace), "}");
}

std::string MonitorCsv(const std::vector<MonitoredPartition>& partitions, int64_t now,
                       bool headings) {
  // The places that public samplers of power and temperature read; they cut at commas.
  const std::vector<std::string> columns = {"IPU-M",
                                            "Serial",
                                            "IPU-M SW",
                                            "Server version",
                                            "ICU FW",
                                            "Type",
                                            "ID",
                                            "IPU#",
                                            "Routing",
                                            "Partition",
                                            "GCD",
                                            "PID",
                                            "Command",
                                            "Time",
                                            "User",
                                            "Clock",
                                            "IPU temp",
                                            "Board temp",
                                            "Board power",
                                            "Application host",
                                            "PCIe ID",
                                            "IPU error state",
                                            "IPU utilisation",
                                            "IPU utilisation session",
                                            "Link errors",
                                            "IPU power"};
  std::string text = headings ? absl::StrCat(absl::StrJoin(columns, ","), "\n") : "";
  for (const auto& partition : partitions) {
    for (const auto& ipu : partition.ipus) {
      Json json = IpuJson(ipu, now);
      json["IPU-M"] = Attribute(ipu, "ipuof host");
      json["IPU-M SW"] = Attribute(ipu, "gateway software version");
      json["Server version"] = Attribute(ipu, "ipuof server version");
      json["ICU FW"] = Attribute(ipu, "firmware version");
      json["Type"] = Attribute(ipu, "board type");
      json["Partition"] = partition.id;
      json["IPU error state"] = Attribute(ipu, "ipu error state");
      json["IPU power"] = Attribute(ipu, "ipu power");
      std::vector<std::string> cells;
      for (const std::string& column : columns) {
        const std::string cell = json.contains(column) ? json[column].get<std::string>() : "";
        cells.push_back(absl::StrReplaceAll(cell, {{",", " "}}));
      }
      absl::StrAppend(&text, absl::StrJoin(cells, ","), "\n");
    }
  }
  return text;
}

}  // namespace vpod::tools
