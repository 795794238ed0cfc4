#include "tools/gc-hostsynclatencytest/latency.h"

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

constexpr uint64_t kDefaultDelayCycles = 32 * 5;  // in the price of a host sync

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

// The programs of the postings come first, so that their indices are the postings'.
ProgramBuilder BuildProgram(const std::vector<uint32_t>& postings) {
  const program::TensorType word{v1::UINT32, {}};
  ProgramBuilder builder;
  const uint32_t mark = builder.Tensor(word), sum = builder.Tensor(word);
  const uint32_t in = builder.Stream("marks", Direction::kToDevice, word, postings[0]);
  const uint32_t out = builder.Stream("sum", Direction::kFromDevice, word);
  for (size_t i = 0; i < postings.size(); ++i) {
    Steps each = builder.Function();
    each.StreamIn(in, mark);
    each.Binary(v1::ADD, sum, mark, sum);
    builder.Program(SyncProgram(i)).Repeat(postings[i], each);
  }
  builder.Program("clear").Fill(sum, 0);
  builder.Program("report").StreamOut(out, sum);
  return builder;
}

// Cycles of the host syncs with their delays, without anything else that is done for a mark.
uint64_t SyncCycles(uint64_t measured, uint64_t priced, const HostSyncOptions& options,
                    const model::Topology& topology) {
  const uint64_t delays = uint64_t{options.num_delays} * options.delay_cycles;
  const uint64_t others = priced - options.mark_count * model::HostSyncCycles(topology).value();
  return measured - others + options.mark_count * delays - options.mark_count * kDefaultDelayCycles;
}

// Posts all marks and lets the device take them. True when none was lost.
absl::StatusOr<bool> TakeMarks(session::Session& session, const std::vector<uint32_t>& postings,
                               uint64_t& cycles) {
  const uint32_t ipus = session.device().local_replicas();
  uint32_t next = 1, expected = 0;
  VPOD_RETURN_IF_ERROR(session.Run("clear").status());
  for (size_t posting = 0; posting < postings.size(); ++posting) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      VPOD_ASSIGN_OR_RETURN(const auto marks, session.Stream<uint32_t>("marks", ipu));
      std::iota(marks.begin(), marks.begin() + postings[posting], next);
    }
    for (uint32_t i = 0; i < postings[posting]; ++i) expected += next++;
    VPOD_ASSIGN_OR_RETURN(const base::Cycles taken, session.Run(SyncProgram(posting)));
    cycles += taken.value();
  }
  VPOD_RETURN_IF_ERROR(session.Run("report").status());
  bool passed = true;
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    VPOD_ASSIGN_OR_RETURN(const auto sum, session.Stream<uint32_t>("sum", ipu));
    passed = passed && sum[0] == expected;
  }
  return passed;
}

}  // namespace

absl::StatusOr<HostSyncReport> MeasureHostSync(std::unique_ptr<session::Device> device,
                                               const HostSyncOptions& options) {
  const std::vector<uint32_t> postings = Postings(options);
  const ProgramBuilder builder = BuildProgram(postings);
  const model::Topology topology = TopologyOf(*device);
  VPOD_ASSIGN_OR_RETURN(const auto compiled, builder.Compile());
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  HostSyncReport report{.options = options, .passed = true};
  uint64_t measured = 0, priced = 0;
  for (size_t i = 0; i < postings.size(); ++i) {
    const auto program = static_cast<uint32_t>(i);
    priced += model::PriceProgram(builder.executable(), program, 0, topology).total().value();
  }
  const WallTimer timer;
  for (uint32_t i = 0; i < options.iterations; ++i) {
    VPOD_ASSIGN_OR_RETURN(const bool passed, TakeMarks(*session, postings, measured));
    report.passed = report.passed && passed;
  }
  report.wall_microseconds = timer.Seconds() * 1e6 / options.iterations;
  const uint64_t cycles = SyncCycles(measured / options.iterations, priced, options, topology);
  report.microseconds = static_cast<double>(cycles) / topology.clock_hz * 1e6;
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
