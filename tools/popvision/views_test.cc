// The figures that views print agree with the profile.
#include "tools/popvision/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"
#include "tools/popvision/chrome_trace.h"
#include "tools/popvision/test_profiles.h"

namespace vpod::popvision {
namespace {

using compiler::Recomputation;
using testing::HasSubstr;
using testing::Not;

TEST(ViewsTest, CategoriesSumToTheTotalOfEachIpu) {
  for (const auto& row : Rows(Summary(Pipeline()), "Memory")) {
    uint64_t sum = 0;
    for (const char* category : {"always live", "not always live", "vertex code", "vertex state",
                                 "exchange code", "control code", "stacks"})
      sum += row[category].get<uint64_t>();
    EXPECT_EQ(row["total"], sum);
    const auto tiles = Pipeline().BytesByTile(row["IPU"]);
    EXPECT_EQ(sum, Sum(tiles));
    EXPECT_EQ(row["fullest tile"], *std::max_element(tiles.begin(), tiles.end()));
  }
}

TEST(ViewsTest, ChartsOfMemoryShowEachTile) {
  for (uint32_t ipu : {0, 1}) {
    const auto chart = Find(Memory(Pipeline()), absl::StrCat("Memory of IPU ", ipu, " by tile"));
    std::vector<uint64_t> sums(Pipeline().target.tiles_per_ipu);
    for (const auto& [name, values] : chart["series"].items()) {
      ASSERT_EQ(values.size(), sums.size());
      for (size_t tile = 0; tile < sums.size(); ++tile) sums[tile] += values[tile].get<uint64_t>();
    }
    EXPECT_EQ(sums, Pipeline().BytesByTile(ipu));
  }
}

TEST(ViewsTest, SharesAreThoseOfTheStepsOfARun) {
  const RecordedRun run = Record({});
  const pva::Report& report = run.report;
  const auto rows = Rows(Trace(report), "Execution of a run");
  ASSERT_EQ(rows.size(), 2u);
  const uint64_t end = run.cycles.value();
  for (uint32_t ipu : {0, 1}) {
    pva::CycleSplit cycles;
    // An IPU that has ended waits for the last one.
    uint64_t waiting = end - report.steps[ipu].back().to;
    for (const pva::Step& step : report.steps[ipu]) {
      const pva::CycleSplit& each = report.operations[step.operation].cycles;
      cycles.compute += each.compute;
      cycles.exchange += each.exchange;
      cycles.sync += each.sync;
      waiting += step.waiting;
    }
    EXPECT_EQ(rows[ipu]["Cycles"], end);
    EXPECT_EQ(cycles.total() + waiting, end);
    const auto expect_share = [&](const char* column, uint64_t part) {
      EXPECT_NEAR(rows[ipu][column].get<double>() / 100 * static_cast<double>(end),
                  static_cast<double>(part), 0.5)
          << column;
    };
    expect_share("Compute %", cycles.compute);
    expect_share("Exchange %", cycles.exchange);
    expect_share("Sync %", cycles.sync);
    expect_share("Waiting %", waiting);
  }
  EXPECT_EQ(report.runs[0].cycles, run.cycles.value());
}

TEST(ViewsTest, LanesSumToTheExecution) {
  const auto phases = Find(Trace(Pipeline()), "Phases"),
             kinds = Find(Trace(Pipeline()), "Compute, exchange and sync");
  for (uint32_t ipu : {0, 1}) {
    const Execution execution = ExecutionOf(Pipeline(), ipu);
    std::map<std::string, uint64_t> sums;
    uint64_t at = 0;
    for (const auto& segment : kinds["lanes"][IpuName(ipu)]) {
      EXPECT_EQ(segment["from"], at);
      at = segment["to"];
      sums[segment["kind"]] += at - segment["from"].get<uint64_t>();
    }
    EXPECT_EQ(sums["compute"], execution.cycles.compute);
    EXPECT_EQ(sums["exchange"], execution.cycles.exchange);
    EXPECT_EQ(sums["sync"], execution.cycles.sync);
    EXPECT_EQ(sums["waiting"], execution.waiting);
    EXPECT_EQ(phases["lanes"][IpuName(ipu)].back()["to"], at);
    EXPECT_EQ(at, Pipeline().planned_cycles());
  }
}

TEST(ViewsTest, WhyNothingIsRecorded) {
  pva::Report report = Pipeline();
  report.runs.clear();
  for (auto& steps : report.steps) steps.clear();
  const auto expect = [&](const std::string& why) {
    for (const auto view : {Summary, Trace, Insights})
      EXPECT_THAT(Text(view(report)), HasSubstr(why));
  };
  expect("No run is recorded: autoReport.outputExecutionProfile is not true.");
  report.options = {{"autoReport.all", "true"}};
  expect("No run is recorded: the program did not run, or not to its end.");
  report.options["autoReport.executionProfileProgramRunCount"] = "0";
  expect("No run is recorded: autoReport.executionProfileProgramRunCount was set to 0.");
  report.options["autoReport.outputExecutionProfile"] = "false";
  expect("No run is recorded: autoReport.outputExecutionProfile is not true.");
  report.first_run_lost = 0;
  expect("Runs from run 0 on are not recorded: the profile could not be written.");
}

TEST(ViewsTest, RunsThatCouldNotBeRecordedAreMissed) {
  pva::Report report = Pipeline();
  report.first_run_lost = 1;
  for (const auto view : {Summary, Trace}) {
    EXPECT_THAT(
        Text(view(report)),
        HasSubstr("Runs from run 1 on are not recorded: the profile could not be written."));
  }
}

TEST(ViewsTest, OperationsSumToTheRun) {
  uint64_t executed = 0;
  for (uint32_t ipu : {0, 1}) executed += ExecutionOf(Pipeline(), ipu).cycles.total();
  const Document operations = Operations(Pipeline());
  for (const char* title :
       {"Phases, all IPUs of a replica in a run", "Instructions", "Operations"}) {
    uint64_t sum = 0;
    for (const auto& row : Rows(operations, title)) {
      EXPECT_EQ(row["Cycles"].get<uint64_t>(), row["Compute"].get<uint64_t>() +
                                                   row["Exchange"].get<uint64_t>() +
                                                   row["Sync"].get<uint64_t>());
      sum += row["Cycles"].get<uint64_t>();
    }
    EXPECT_EQ(sum, executed) << title;
  }
}

TEST(ViewsTest, ThePeakIsTheHighestPointOfLiveness) {
  for (uint32_t ipu : {0, 1}) {
    const auto chart = Find(Liveness(Pipeline()), absl::StrCat("Memory of IPU ", ipu, " in use"));
    const auto facts = Find(Liveness(Pipeline()), absl::StrCat("Peak of IPU ", ipu))["facts"];
    const auto at = [&](size_t step) {
      uint64_t sum = 0;
      for (const auto& [name, values] : chart["series"].items())
        sum += values[step].get<uint64_t>();
      return sum;
    };
    const size_t steps = chart["series"]["always live"].size(), peak = facts["Step"];
    for (size_t step = 0; step < steps; ++step) EXPECT_LE(at(step), at(peak));
  }
}

TEST(ViewsTest, IpusWithoutStepsAreNamed) {
  pva::Report report = Pipeline();
  for (auto& steps : report.liveness) steps.clear();
  for (const char* ipu : {"0", "1"})
    EXPECT_THAT(Text(Liveness(report)), HasSubstr(absl::StrCat("IPU ", ipu, " executes nothing.")));
}

TEST(ViewsTest, TheTreeHasEveryOperationThatIsExecuted) {
  for (uint32_t ipu : {0, 1}) {
    const auto tree = Find(ProgramTree(Pipeline()), absl::StrCat("Program of IPU ", ipu));
    std::string all;
    for (const auto& row : tree["rows"])
      absl::StrAppend(&all, row["Program"].get<std::string>(), "\n");
    for (const pva::Operation& operation : Pipeline().operations) {
      if (operation.ipu != ipu) continue;
      EXPECT_THAT(all, HasSubstr(operation.name));
    }
  }
}

TEST(ViewsTest, TrafficWithStreamingMemoryIsShown) {
  const pva::Report report = ProfileOf({.ipus = 1,
                                        .accumulation = 2,
                                        .optimizer = compiler::AdamOptions{},
                                        .replicas = 2,
                                        .off_chip = true});
  uint64_t bytes = 0, exchange = 0, cycles = 0;
  for (const pva::Operation& operation : report.operations) {
    ASSERT_EQ(operation.remote_buffer.has_value(),
              operation.instruction == "remote_load" || operation.instruction == "remote_store");
    if (!operation.remote_buffer) continue;
    const pva::RemoteBuffer& buffer = report.remote_buffers[*operation.remote_buffer];
    EXPECT_EQ(operation.from_streaming_memory + operation.to_streaming_memory,
              buffer.bytes / buffer.rows);
    EXPECT_EQ(operation.to_streaming_memory > 0, operation.instruction == "remote_store");
    bytes +=
        (operation.from_streaming_memory + operation.to_streaming_memory) * operation.executions;
    exchange += operation.all_cycles().exchange;
    cycles += operation.all_cycles().exchange + operation.all_cycles().sync;
  }
  ASSERT_GT(bytes, 0u);
  const auto row = Rows(Summary(report), "Streaming memory of a replica in a run")[0];
  EXPECT_EQ(row["Loaded (bytes)"].get<uint64_t>() + row["Stored (bytes)"].get<uint64_t>(), bytes);
  EXPECT_EQ(row["Cycles"], cycles);
  EXPECT_EQ(row["Remote buffers"], report.remote_buffers.size());
  uint64_t shown = 0, in_lane = 0;
  for (const auto& operation : Rows(Operations(report), "Operations"))
    shown += operation["Streaming memory (bytes)"].get<uint64_t>();
  EXPECT_EQ(shown, bytes);
  const auto lanes = Find(Trace(report), "Compute, exchange and sync")["lanes"];
  for (const auto& segment : lanes["IPU 0"]) {
    if (segment["kind"] == "streaming memory")
      in_lane += segment["to"].get<uint64_t>() - segment["from"].get<uint64_t>();
  }
  EXPECT_EQ(in_lane, exchange);
  const std::string tree = Text(ProgramTree(report));
  EXPECT_THAT(tree, HasSubstr(" bytes from streaming memory, a row of 'Accl"));
  EXPECT_THAT(tree, HasSubstr(" bytes to streaming memory, a row of 'train/stash/0/"));
  EXPECT_THAT(Text(Insights(report)),
              testing::ContainsRegex("IPU 0 spends [0-9]+ % of a run with streaming memory. It "
                                     "moves the state of the optimiser, weights"));
  EXPECT_THAT(Text(Insights(report)),
              HasSubstr("the state of the optimiser shared out among the replicas of each instance "
                        "(CompileOptions::tensor_shards)"));
  EXPECT_THAT(Text(Summary(Pipeline())), Not(HasSubstr("Streaming memory")));
  EXPECT_THAT(Text(Insights(Pipeline())), Not(HasSubstr("streaming memory")));
}

TEST(ViewsTest, AccumulatorsOffTheChipAreNoActivations) {
  const pva::Report report =
      ProfileOf({.ipus = 1, .accumulation = 2, .off_chip_accumulators = true});
  EXPECT_THAT(Text(Insights(report)),
              HasSubstr("It moves accumulators. To try: a larger micro-batch with less gradient "
                        "accumulation, less of it off the chip"));
}

TEST(ViewsTest, DiffShowsBothAndTheChange) {
  const pva::Report kept = ProfileOf({.ipus = 1, .micro_batch = 32}),
                    again = ProfileOf(
                        {.ipus = 1, .micro_batch = 32, .recomputation = Recomputation::kStandard});
  const Document diff = Diff(kept, again);
  const auto cycles = Find(diff, "Totals")["rows"][0];
  EXPECT_EQ(cycles["Before"], kept.planned_cycles());
  EXPECT_EQ(cycles["After"], again.planned_cycles());
  EXPECT_GT(again.planned_cycles(), kept.planned_cycles());
  EXPECT_EQ(cycles["Change"], again.planned_cycles() - kept.planned_cycles());
  EXPECT_LT(Find(diff, "Totals")["rows"][1]["Change"].get<int64_t>(), 0);
  EXPECT_LT(Sum(again.BytesByTile(0)), Sum(kept.BytesByTile(0)));
  int recomputed = 0;
  for (const auto& row : Rows(diff, "Cycles of all IPUs of a replica in a run")) {
    recomputed += row["Phase"] == "recompute" ? 1 : 0;
    if (row["Phase"] == "recompute") {
      EXPECT_EQ(row["Before"], 0);
      EXPECT_EQ(row["Change"], row["After"]);
      EXPECT_TRUE(row["Change %"].is_null());
    }
  }
  EXPECT_EQ(recomputed, 1);
  for (const auto& block : Blocks(Diff(kept, kept))) {
    for (const auto& row : block["rows"]) EXPECT_EQ(row["Change"], 0);
  }
}

TEST(ViewsTest, DiffSaysWhichSideHasNoRuns) {
  pva::Report without = Pipeline();
  without.runs.clear();
  for (auto& steps : without.steps) steps.clear();
  const Document diff = Diff(Pipeline(), without);
  const auto cycles = Find(diff, "Totals")["rows"][0];
  EXPECT_EQ(cycles["Before"], Pipeline().planned_cycles());
  for (const char* column : {"After", "Change", "Change %"})
    EXPECT_TRUE(cycles[column].is_null()) << column;
  EXPECT_EQ(
      Find(diff, "Runs that are missing")["notes"],
      nlohmann::json::array({absl::StrCat("After, ", without.path, ": ", WhyNoRun(without))}));
  EXPECT_EQ(Find(Diff(without, without), "Runs that are missing")["notes"].size(), 2u);
  EXPECT_THAT(Text(Diff(Pipeline(), Pipeline())), Not(HasSubstr("missing")));
}

TEST(ViewsTest, ChromeTraceHasATrackForEachIpu) {
  const std::string path = absl::StrCat(testing::TempDir(), "/trace.", getpid(), ".json");
  ASSERT_TRUE(WriteChromeTrace(Pipeline(), path).ok());
  const auto trace = nlohmann::json::parse(base::ReadFile(path));
  std::map<int, double> ends, sums;
  size_t tracks = 0;
  for (const auto& event : trace["traceEvents"]) {
    tracks += event["name"] == "thread_name" ? 1 : 0;
    if (event["ph"] != "X") continue;
    ends[event["tid"]] =
        std::max(ends[event["tid"]], event["ts"].get<double>() + event["dur"].get<double>());
    sums[event["tid"]] += event["dur"].get<double>();
  }
  EXPECT_EQ(tracks, 2u);
  const double end =
      1e6 * static_cast<double>(Pipeline().planned_cycles()) / Pipeline().target.clock_hz;
  for (uint32_t ipu : {0, 1}) {
    EXPECT_NEAR(ends[static_cast<int>(ipu)], end, 1e-3);
    EXPECT_NEAR(sums[static_cast<int>(ipu)], end, 0.1);
  }
}

TEST(ViewsTest, AChromeTraceReplacesNoFileBesideIt) {
  namespace fs = std::filesystem;
  const std::string directory = absl::StrCat(testing::TempDir(), "/beside.", getpid()),
                    path = directory + "/trace.json", other = absl::StrCat(path, ".", getpid());
  fs::create_directories(directory);
  ASSERT_TRUE(base::ReplaceFile(other, "other", 0644).ok());
  ASSERT_TRUE(WriteChromeTrace(Pipeline(), path).ok());
  EXPECT_EQ(base::ReadFile(other), "other");
  fs::rename(other, directory + "/other");
  fs::create_symlink("other", other);
  ASSERT_TRUE(WriteChromeTrace(Pipeline(), path).ok());
  EXPECT_EQ(base::ReadFile(other), "other");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path)));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 3);
  fs::remove_all(directory);
}

}  // namespace
}  // namespace vpod::popvision
