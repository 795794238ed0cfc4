// gc-memorytest: writes patterns to the memory of every tile of a device and reads them back. The
// IPUs of a device are tested one after another, so that the emulating host holds the memory of one
// at a time.
#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tools/gc-memorytest/memory.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-memorytest";

absl::StatusOr<TileTestReport> TestAll(uint32_t device_id, uint32_t elements) {
  VPOD_ASSIGN_OR_RETURN(const auto ipus, IpusOfActiveDevice(device_id));
  TileTestReport all;
  for (uint32_t i = 0; i < ipus.size() && !all.fault.has_value(); ++i) {
    VPOD_ASSIGN_OR_RETURN(auto device, AttachForTest({.device_id = ipus[i]}));
    VPOD_ASSIGN_OR_RETURN(const auto report, TestMemory(std::move(device), i, elements));
    all.seconds += report.seconds;
    all.wall_seconds += report.wall_seconds;
    all.fault = report.fault;
  }
  all.details = {{"ipus", absl::StrCat(ipus.size())},
                 {"tiles_per_ipu", absl::StrCat(arch::kTilesPerIpu)},
                 {"bytes_per_tile", absl::StrCat(elements * kMemoryElementBytes)}};
  return all;
}

int Main(int argc, char** argv) {
  TestOptions test;
  NumberOption elements{kTestableElements};
  po::options_description options("Allowed options");
  AddTestOptions(options, test);
  options.add_options()("elements", po::value(&elements)->default_value(elements),
                        "memory elements of 16 KiB to test on each tile");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  if (const auto usage = CheckRange("elements", elements, 1, kTestableElements); !usage.ok())
    return UsageError(kTool, std::string(usage.message()));
  const auto report = TestAll(test.device.id, elements.value);
  return report.ok() ? PrintTileTest(test, *report) : GcError(kTool, report.status());
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
