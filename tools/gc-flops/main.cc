// gc-flops: how many floating-point operations a second the IPUs of a device do.
#include <cstdio>

#include "tools/device_check/device_check.h"
#include "tools/gc-flops/flops.h"

namespace vpod::tools {
namespace {

int Main(int argc, char** argv) {
  TestOptions test;
  std::string precision;
  bool low_clock_rate = false;
  po::options_description options("Allowed options");
  AddTestOptions(options, test);
  options.add_options()                                                            //
      ("fp,p", po::value(&precision)->default_value("FP16"), "FP16, FP32 or FP8")  //
      ("low-clock-rate,l", po::bool_switch(&low_clock_rate),
       "permit a low clock; emulated IPUs have none");
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-flops", argc, argv, options, values); code >= 0)
    return code;
  if (const auto usage = CheckOneOf("fp", precision, {"FP16", "FP32", "FP8"}); !usage.ok())
    return UsageError("gc-flops", std::string(usage.message()));

  auto device = AttachForTest({.device_id = test.device.id});
  if (!device.ok()) return GcError("gc-flops", device.status());
  if (precision == "FP8") {
    return GcError("gc-flops",
                   absl::UnimplementedError((*device)->name() +
                                            " has no FP8 units (ipu2), give --fp FP16 or FP32"));
  }
  if (!test.json) {
    std::printf(
        "This test can take up to 3 minutes to run.\n"
        "Loading binary into IPU(s)\n"
        "Starting %s FLOPS calculation...\n",
        precision.c_str());
    std::fflush(stdout);
  }
  const auto report = MeasureFlops(
      *std::move(device), precision == "FP16" ? program::v1::FLOAT16 : program::v1::FLOAT32);
  if (!report.ok()) return GcError("gc-flops", report.status());
  const std::string text = test.json ? JsonObject(FlopsRows(test.device.id, *report, test.wall))
                                     : FlopsText(*report, test.wall);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
