// gc-monitor: IPUs of the active partition and the processes on them.
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ipuof/lease.h"
#include "client/ipuof/telemetry.h"
#include "client/render/table.h"
#include "tools/gc-monitor/monitor.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

struct Flags {
  bool all_partitions = false, no_card_info = false, json = false, csv = false;
  std::string watch;
};

// One look; the text for stdout, or the exit status.
int Show(const Flags& flags) {
  const int64_t now = std::time(nullptr);
  const auto partitions = ipuof::LookAtPartitions(flags.all_partitions);
  if (!partitions.ok()) {
    GcError("gc-monitor", partitions.status());
    if (flags.json) {
      std::fputs("{\"cards\": []}\n", stdout);
      return 0;
    }
    return 1;
  }
  if (flags.json) {
    std::fputs(MonitorJson(*partitions, now).c_str(), stdout);
    return 0;
  }
  if (flags.csv) {
    std::fputs(MonitorCsv(*partitions, now).c_str(), stdout);
    return 0;
  }
  const ipuof::v1::ProcessInfo self = ipuof::ThisProcess();
  for (const MonitoredPartition& partition : *partitions) {
    if (!flags.no_card_info) std::fputs(DeviceTable(partition).c_str(), stdout);
    std::fputs(
        ProcessTables(partition, render::TerminalColumns(), self.host(), self.pid_namespace(), now)
            .c_str(),
        stdout);
  }
  return 0;
}

int Watch(const Flags& flags, double seconds) {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupts, nullptr);
  const timespec period{static_cast<time_t>(seconds),
                        static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  do {
    std::fputs("\033[H\033[2J", stdout);
    Show(flags);
    std::fflush(stdout);
  } while (sigtimedwait(&interrupts, nullptr, &period) != SIGINT);
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("all-partitions", po::bool_switch(&flags.all_partitions),
       "all partitions, not only the active one")                                      //
      ("no-card-info", po::bool_switch(&flags.no_card_info), "omit the device table")  //
      ("json,j", po::bool_switch(&flags.json), "JSON")                                 //
      ("csv", po::bool_switch(&flags.csv), "comma-separated values")                   //
      ("watch", po::value(&flags.watch)->implicit_value("1"),
       "redraw every so many seconds until Ctrl-C");
  const std::string version = absl::StrCat("Poplar version: ", kToolVersion);
  if (argc == 2 && std::string(argv[1]) == "version") {
    std::printf("%s\n", version.c_str());
    return 0;
  }
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-monitor", argc, argv, options, values, version);
      code >= 0)
    return code;
  if (flags.watch.empty()) return Show(flags);
  double seconds = 0;
  if (!absl::SimpleAtod(flags.watch, &seconds) || !(seconds >= 0.1 && seconds <= 86400)) {
    std::fprintf(stderr, "gc-monitor: error: --watch=%s is no number of seconds of 0.1 to 86400\n",
                 flags.watch.c_str());
    return 2;
  }
  return Watch(flags, seconds);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
