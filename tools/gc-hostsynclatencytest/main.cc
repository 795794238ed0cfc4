// gc-hostsynclatencytest: how long the syncs between the host and the IPUs of a device take.
#include <cstdio>
#include <string>

#include "tools/gc-hostsynclatencytest/latency.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-hostsynclatencytest";

int Main(int argc, char** argv) {
  TestOptions test;
  HostSyncOptions sync;
  NumberOption iterations{sync.iterations}, delay{sync.delay_cycles}, delays{sync.num_delays},
      marks{sync.mark_count};
  po::options_description options("Allowed options");
  AddTestOptions(options, test);
  options.add_options()  //
      ("which-hsp", po::value(&sync.hsp)->default_value(sync.hsp),
       "host sync proxy: hsp1, hsp2 or both; reported, the model has one for all")  //
      ("iterations,i", po::value(&iterations)->default_value(iterations),
       "repetitions of the test")  //
      ("split-increment", po::bool_switch(&sync.split_increments),
       "post the marks in two halves")  //
      ("sync-mode,m", po::value(&sync.mode)->default_value(sync.mode),
       "posted, polling or hybrid; reported, they take the same time in the model")  //
      ("delay-val", po::value(&delay)->default_value(delay),
       "cycles of a delay instruction, at most 20")  //
      ("num-delays", po::value(&delays)->default_value(delays),
       "delay instructions after each sync")  //
      ("mark-count", po::value(&marks)->default_value(marks), "syncs, at most 4095");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  for (const auto& usage :
       {CheckOneOf("which-hsp", sync.hsp, {"hsp1", "hsp2", "both"}),
        CheckOneOf("sync-mode", sync.mode, {"posted", "polling", "hybrid"}),
        CheckRange("iterations", iterations, 1, 1'000'000), CheckRange("delay-val", delay, 0, 20),
        CheckRange("num-delays", delays, 0, 1'000'000),
        CheckRange("mark-count", marks, 1, kMaxMarks)}) {
    if (!usage.ok()) return UsageError(kTool, std::string(usage.message()));
  }
  sync.iterations = iterations.value;
  sync.delay_cycles = delay.value;
  sync.num_delays = delays.value;
  sync.mark_count = marks.value;

  auto device = AttachForTest({.device_id = test.device.id});
  if (!device.ok()) return GcError(kTool, device.status());
  const auto report = MeasureHostSync(*std::move(device), sync);
  if (!report.ok()) return GcError(kTool, report.status());
  const std::string text = test.json ? JsonObject(HostSyncRows(test.device.id, *report, test.wall))
                                     : HostSyncText(test.device.id, *report, test.wall);
  std::fputs(text.c_str(), stdout);
  return report->passed ? 0 : 1;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
