#include "tools/gc-hostsynclatencytest/latency.h"

#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;

using Mark = uint16_t;  // and the sum of all, modulo 2^16
static_assert(kMaxMarks <= std::numeric_limits<Mark>::max());

constexpr uint64_t kDefaultDelayCycles = 32 * 5;  // contained in the sync of the machine

std::string ModeName(const HostSyncOptions& options) {
  std::string name = options.mode;
  name[0] = absl::ascii_toupper(static_cast<unsigned char>(name[0]));
  return name;
}

// How many marks the host posts at a time.
std::vector<uint32_t> Postings(const HostSyncOptions& options) {
  if (!options.split_increments || options.mark_count < 2) return {options.mark_count};
  return {options.mark_count - options.mark_count / 2, options.mark_count / 2};
}

std::string SyncProgram(size_t posting) { return absl::StrCat("sync ", posting); }
std::string LoadProgram(size_t posting) { return absl::StrCat("load ", posting); }

// For each posting two programs that differ in where the marks come from: from the host, with a
// sync each, or from the machine's memory, without.
ProgramBuilder BuildProgram(const std::vector<uint32_t>& postings) {
  const program::TensorType word{v1::UINT16, {}};
  ProgramBuilder builder;
  const uint32_t mark = builder.Tensor(word), sum = builder.Tensor(word);
  const uint32_t row = builder.Tensor({v1::INT32, {}});
  const uint32_t buffer = builder.RemoteBuffer("marks", word, 1);
  const uint32_t in = builder.Stream("marks", Direction::kToDevice, word, postings[0]);
  const uint32_t out = builder.Stream("sum", Direction::kFromDevice, word);
  for (size_t i = 0; i < postings.size(); ++i) {
    Steps sync = builder.Function(), load = builder.Function();
    sync.StreamIn(in, mark);
    load.RemoteLoad(buffer, row, mark);
    for (Steps* each : {&sync, &load}) each->Binary(v1::ADD, sum, mark, sum);
    builder.Program(SyncProgram(i)).Repeat(postings[i], sync);
    builder.Program(LoadProgram(i)).Repeat(postings[i], load);
  }
  Steps clear = builder.Program("clear");
  clear.Fill(sum, 0);
  clear.Fill(row, 0);
  builder.Program("report").StreamOut(out, sum);
  return builder;
}

// Posts all marks and lets the device take them, and adds the cycles of that. True when none was
// lost.
absl::StatusOr<bool> TakeMarks(session::Session& session, const std::vector<uint32_t>& postings,
                               base::Cycles& cycles) {
  const uint32_t ipus = session.device().local_replicas();
  Mark next = 1, expected = 0;
  VPOD_RETURN_IF_ERROR(session.Run("clear").status());
  for (size_t posting = 0; posting < postings.size(); ++posting) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      VPOD_ASSIGN_OR_RETURN(const auto marks, session.Stream<Mark>("marks", ipu));
      std::iota(marks.begin(), marks.begin() + postings[posting], next);
    }
    for (uint32_t i = 0; i < postings[posting]; ++i)
      expected = static_cast<Mark>(expected + next++);
    VPOD_ASSIGN_OR_RETURN(const base::Cycles taken, session.Run(SyncProgram(posting)));
    cycles += taken;
  }
  VPOD_RETURN_IF_ERROR(session.Run("report").status());
  bool passed = true;
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    VPOD_ASSIGN_OR_RETURN(const auto sum, session.Stream<Mark>("sum", ipu));
    passed = passed && sum[0] == expected;
  }
  return passed;
}

// Cycles of the same without the host.
absl::StatusOr<base::Cycles> LoadMarks(session::Session& session, size_t postings) {
  base::Cycles cycles;
  for (size_t posting = 0; posting < postings; ++posting) {
    VPOD_ASSIGN_OR_RETURN(const base::Cycles taken, session.Run(LoadProgram(posting)));
    cycles += taken;
  }
  return cycles;
}

// The latency of all syncs, with the delays that are asked for in place of those that the syncs
// contain.
double Microseconds(base::Cycles syncs, const HostSyncOptions& options, double clock_hz) {
  const uint64_t delays = uint64_t{options.num_delays} * options.delay_cycles;
  const uint64_t cycles =
      syncs.value() + options.mark_count * delays - options.mark_count * kDefaultDelayCycles;
  return static_cast<double>(cycles) / clock_hz * 1e6;
}

}  // namespace

absl::StatusOr<HostSyncReport> MeasureHostSync(std::unique_ptr<session::Device> device,
                                               const HostSyncOptions& options) {
  const std::vector<uint32_t> postings = Postings(options);
  VPOD_ASSIGN_OR_RETURN(const auto compiled, BuildProgram(postings).Compile());
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  HostSyncReport report{.options = options, .passed = true};
  base::Cycles with;
  const WallTimer timer;
  for (uint32_t i = 0; i < options.iterations; ++i) {
    VPOD_ASSIGN_OR_RETURN(const bool passed, TakeMarks(*session, postings, with));
    report.passed = report.passed && passed;
  }
  report.wall_microseconds = timer.Seconds() * 1e6 / options.iterations;
  // Every iteration takes as long.
  VPOD_ASSIGN_OR_RETURN(const base::Cycles without, LoadMarks(*session, postings.size()));
  report.microseconds = Microseconds(base::Cycles(with.value() / options.iterations) - without,
                                     options, session->device().clock_hz());
  return report;
}

std::string HostSyncText(uint32_t device_id, const HostSyncReport& report, bool wall) {
  const HostSyncOptions& options = report.options;
  std::string text = absl::StrFormat(
      "o Using device Id - %d\n"
      "o Using sync mode: %s, HSP: %s\n"
      "  - Issuing %d syncs, each followed by %d delay instructions of %d cycles\n"
      "o Loading binary on all tiles... done\n"
      "o Syncs took on average %.0f us\n",
      device_id, ModeName(options), options.hsp, options.mark_count, options.num_delays,
      options.delay_cycles, report.microseconds);
  if (wall)
    absl::StrAppendFormat(&text, "o Host took on average %.0f us\n", report.wall_microseconds);
  return absl::StrCat(text, "o Result - ", report.passed ? "Pass" : "Fail", "\n");
}

Rows HostSyncRows(uint32_t device_id, const HostSyncReport& report, bool wall) {
  const HostSyncOptions& options = report.options;
  Rows rows = {{"ipu_id", absl::StrCat(device_id)},
               {"device_id", absl::StrCat(device_id)},
               {"sync_mode", ModeName(options)},
               {"hsp", options.hsp},
               {"delay_cycles", absl::StrCat(options.delay_cycles)},
               {"num_delays", absl::StrCat(options.num_delays)},
               {"iterations", absl::StrCat(options.iterations)},
               {"mark_count", absl::StrCat(options.mark_count)},
               {"split_increments", options.split_increments ? "true" : "false"},
               {"time_to_sync_us", absl::StrFormat("%.0f", report.microseconds)}};
  if (wall) rows.push_back({"wall_time_us", absl::StrFormat("%.0f", report.wall_microseconds)});
  rows.push_back({"result", report.passed ? "pass" : "fail"});
  return rows;
}

}  // namespace vpod::tools
