// gc-monitor: IPUs of the active partition and the processes on them.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ipuof/telemetry.h"
#include "client/render/table.h"
#include "device/base/status.h"
#include "tools/gc-monitor/monitor.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

struct Flags {
  bool all_partitions = false, no_card_info = false, json = false, csv = false, sensors = false;
  bool no_headers = false;
  std::string watch;
};

// One look; the text for stdout.
absl::StatusOr<std::string> Look(const Flags& flags) {
  const int64_t now = std::time(nullptr);
  VPOD_ASSIGN_OR_RETURN(const auto partitions, ipuof::LookAtPartitions(flags.all_partitions));
  if (flags.json) return MonitorJson(partitions, now);
  if (flags.csv || flags.sensors) return MonitorCsv(partitions, now, !flags.no_headers);
  std::string text;
  for (const MonitoredPartition& partition : partitions) {
    if (!flags.no_card_info) absl::StrAppend(&text, DeviceTable(partition));
    absl::StrAppend(&text, ProcessTables(partition, render::TerminalColumns(), now));
  }
  return text;
}

// The exit status.
int Print(const Flags& flags, const absl::StatusOr<std::string>& look) {
  if (look.ok()) {
    std::fputs(look->c_str(), stdout);
    return 0;
  }
  const std::string what(look.status().message());
  const int code = GcError("gc-monitor", look.status(), MonitorErrorJson(what));
  return flags.json ? 0 : code;
}

[[noreturn]] void Watch(const Flags& flags, double seconds) {
  // Ends at once, also while it asks someone who does not answer.
  std::signal(SIGINT, [](int) { _exit(0); });
  while (true) {
    const auto look = Look(flags);
    if (render::TakesEscapeCodes(STDOUT_FILENO)) std::fputs("\033[H\033[2J", stdout);
    std::fflush(stdout);  // before what goes to stderr
    Print(flags, look);
    if (std::fflush(stdout) != 0) std::exit(1);  // nobody sees it
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
}

int Main(int argc, char** argv) {
  Flags flags;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("all-partitions", po::bool_switch(&flags.all_partitions),
       "all partitions, not only the active one")                                      //
      ("no-card-info", po::bool_switch(&flags.no_card_info), "omit the device table")  //
      ("json,j", po::bool_switch(&flags.json), "JSON")                                 //
      ("csv-output,c", po::bool_switch(&flags.csv), "comma-separated values")          //
      ("sensors,s", po::bool_switch(&flags.sensors), "with sensors: comma-separated values")(
          "no-headers", po::bool_switch(&flags.no_headers), "no heading above them")(
          "watch", po::value(&flags.watch)->implicit_value("1"),
          "redraw at this interval in seconds until Ctrl-C");
  if (argc == 2 && std::string(argv[1]) == "version") {
    std::printf("%s\n", VersionLine().c_str());
    return 0;
  }
  po::variables_map values;
  if (const int code = ParseGcOptions("gc-monitor", argc, argv, options, values); code >= 0)
    return code;
  if (flags.json && (flags.csv || flags.sensors)) {
    return UsageError("gc-monitor",
                      absl::StrCat("options --json and ", flags.csv ? "--csv-output" : "--sensors",
                                   " exclude each other"));
  }
  if (flags.watch.empty()) return Print(flags, Look(flags));
  double seconds = 0;
  if (!absl::SimpleAtod(flags.watch, &seconds) || !(seconds >= 0.1 && seconds <= 86400)) {
    return UsageError("gc-monitor", absl::StrCat("--watch=", flags.watch,
                                                 " must be a number of seconds from 0.1 to 86400"));
  }
  Watch(flags, seconds);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
