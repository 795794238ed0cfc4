#include "tools/device_check/tile_check.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vpod::tools {

std::string TileTestText(const TileTestReport& report, bool wall) {
  std::string text;
  for (const auto& [key, value] : report.details) absl::StrAppend(&text, key, ": ", value, "\n");
  absl::StrAppendFormat(&text, "duration_seconds: %g\n", report.seconds);
  if (wall) absl::StrAppendFormat(&text, "wall_duration_seconds: %g\n", report.wall_seconds);
  if (report.fault.has_value()) {
    const TileFault& fault = *report.fault;
    absl::StrAppendFormat(&text, "IPU %d, tile %d, address 0x%05x: expected 0x%08x, found 0x%08x\n",
                          fault.ipu, fault.tile, fault.address, fault.expected, fault.found);
  }
  return absl::StrCat(text, "Result - ", report.fault.has_value() ? "Fail" : "Pass", "\n");
}

Rows TileTestRows(uint32_t device_id, const TileTestReport& report, bool wall) {
  Rows rows = {{"device_id", absl::StrCat(device_id)}};
  rows.insert(rows.end(), report.details.begin(), report.details.end());
  rows.push_back({"duration_seconds", AllDigits(report.seconds)});
  if (wall) rows.push_back({"wall_duration_seconds", AllDigits(report.wall_seconds)});
  if (report.fault.has_value()) {
    const TileFault& fault = *report.fault;
    rows.push_back({"failed_ipu", absl::StrCat(fault.ipu)});
    rows.push_back({"failed_tile", absl::StrCat(fault.tile)});
    rows.push_back({"failed_address", absl::StrFormat("0x%05x", fault.address)});
    rows.push_back({"expected", absl::StrFormat("0x%08x", fault.expected)});
    rows.push_back({"found", absl::StrFormat("0x%08x", fault.found)});
  }
  rows.push_back({"result", report.fault.has_value() ? "fail" : "pass"});
  return rows;
}

int PrintTileTest(const TestOptions& options, const TileTestReport& report) {
  const std::string text = options.json
                               ? JsonObject(TileTestRows(options.device.id, report, options.wall))
                               : TileTestText(report, options.wall);
  std::fputs(text.c_str(), stdout);
  return report.fault.has_value() ? 1 : 0;
}

int RunTileTest(const std::string& tool, int argc, char** argv,
                absl::StatusOr<TileTestReport> (*test)(std::unique_ptr<session::Device>)) {
  TestOptions values;
  po::options_description options("Allowed options");
  AddTestOptions(options, values);
  po::variables_map map;
  if (const int code = ParseGcOptions(tool, argc, argv, options, map); code >= 0) return code;
  auto device = AttachForTest({.device_id = values.device.id});
  if (!device.ok()) return GcError(tool, device.status());
  const auto report = test(*std::move(device));
  return report.ok() ? PrintTileTest(values, *report) : GcError(tool, report.status());
}

}  // namespace vpod::tools
