// gc-hosttraffictest: bandwidth between the host and the IPUs of a device, both ways.
#include <cstdio>

#include "device/arch/hardware.h"
#include "tools/gc-hosttraffictest/traffic.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-hosttraffictest";

int Main(int argc, char** argv) {
  TestOptions test;
  NumberOption iterations{100000}, tiles{32};
  po::options_description options("Allowed options");
  AddTestOptions(options, test);
  options.add_options()  //
      ("iterations", po::value(&iterations)->default_value(iterations),
       "transfers of each tile")  //
      ("tiles-per-ipu", po::value(&tiles)->default_value(tiles), "tiles that take part");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  for (const auto& usage : {CheckRange("iterations", iterations, 1, 100'000'000),
                            CheckRange("tiles-per-ipu", tiles, 1, arch::kTilesPerIpu)}) {
    if (!usage.ok()) return UsageError(kTool, std::string(usage.message()));
  }

  auto device = AttachForTest({.device_id = test.device.id});
  if (!device.ok()) return GcError(kTool, device.status());
  const auto report = MeasureHostTraffic(
      *std::move(device), {.iterations = iterations.value, .tiles_per_ipu = tiles.value});
  if (!report.ok()) return GcError(kTool, report.status());
  const std::string text =
      test.json ? HostTrafficJson(*report, test.wall) : HostTrafficText(*report, test.wall);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
