// What views print agrees with the profile.
#include "tools/popvision/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/resnet.h"
#include "client/profile/profile.h"
#include "device/base/file.h"
#include "device/model/timeline.h"
#include "tools/popvision/chrome_trace.h"

namespace vpod::popvision {
namespace {

using compiler::Recomputation;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::HasSubstr;
using testing::Not;

struct Options {
  uint32_t ipus = 2, accumulation = 7;
  int64_t micro_batch = 2;
  Recomputation recomputation = Recomputation::kNone;
  program::v1::DataType type = FLOAT32;
  compiler::Optimizer optimizer = {};
  uint32_t replicas = 1;
  bool off_chip = false;  // state, activations and weights
};

// The profile of ResNet-18 for small images, on a pipeline if it has several IPUs.
pva::Report ReportOf(const Options& options) {
  Graph g;
  const nn::Builder net(g, {.training = true});
  models::ResNetOptions resnet = models::ResNet18();
  resnet.small_images = true;
  resnet.classes = 10;
  if (options.ipus == 2) resnet.stages = {"layer3.0"};
  const Tensor logits = models::ResNet(
      net, g.Input("images", {options.type, {options.micro_batch, 3, 32, 32}}), resnet);
  const Tensor loss =
      g.Mean(g.SoftmaxCrossEntropy(logits, g.Input("labels", {INT32, {options.micro_batch}})));
  g.Output("loss", loss);
  compiler::CompileOptions compile{.ipus_per_replica = options.ipus,
                                   .schedule = compiler::Schedule::kGrouped};
  compile.recomputation = options.recomputation;
  compile.off_chip_optimizer_state = options.off_chip;
  compile.off_chip_activations = options.off_chip;
  compile.off_chip_weights = options.off_chip;
  compile.total_replicas = options.replicas;
  compile.allow_out_of_memory = true;
  compile.programs = {{.name = "train",
                       .accumulation = options.accumulation,
                       .loss = loss,
                       .optimizer = options.optimizer}};
  const auto compiled = compiler::Compile(g, compile);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  static int number = 0;
  profile::ProfileOptions profile;
  profile.directory = absl::StrCat(testing::TempDir(), "/", getpid(), ".", number++);
  profile.execution = true;
  profile.topology.ipus_per_replica = options.ipus;
  profile.topology.num_replicas = options.replicas;
  const auto profiler = profile::Profiler::Create(compiled->executable, profile);
  EXPECT_TRUE(profiler.ok()) << profiler.status();
  const base::Cycles cycles =
      model::TimelineOf(compiled->executable->proto(), 0, profile.topology).end();
  EXPECT_TRUE((*profiler)->AddRun(0, cycles).ok());
  auto report = pva::OpenReport(profile.directory + "/train");
  EXPECT_TRUE(report.ok()) << report.status();
  std::filesystem::remove_all(profile.directory);
  return *std::move(report);
}

const pva::Report& Pipeline() {
  static const auto* const report = new pva::Report(ReportOf({}));
  return *report;
}

nlohmann::json Blocks(const Document& document) {
  return nlohmann::json::parse(Json(document))["blocks"];
}
nlohmann::json Find(const Document& document, const std::string& title) {
  for (const auto& block : Blocks(document)) {
    if (block["title"] == title) return block;
  }
  ADD_FAILURE() << "no block " << title;
  return {};
}

std::vector<nlohmann::json> Rows(const Document& document, const std::string& title) {
  return Find(document, title)["rows"];
}

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

TEST(ViewsTest, SharesOfExecutionSumToTheRun) {
  uint64_t slowest = 0;
  for (const auto& row : Rows(Trace(Pipeline()), "Execution of a run")) {
    EXPECT_NEAR(row["Compute %"].get<double>() + row["Exchange %"].get<double>() +
                    row["Sync %"].get<double>() + row["Waiting %"].get<double>(),
                100, 1e-6);
    slowest = std::max(slowest, row["Cycles"].get<uint64_t>());
  }
  EXPECT_EQ(slowest, Pipeline().planned_cycles());
  EXPECT_EQ(slowest, Pipeline().runs[0].cycles);
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
  expect("No run is recorded: autoReport.outputExecutionProfile was not set.");
  report.options = {{"autoReport.all", "true"}};
  expect("No run is recorded: the program did not run, or not to its end.");
  report.options["autoReport.executionProfileProgramRunCount"] = "0";
  expect("No run is recorded: autoReport.executionProfileProgramRunCount was set to 0.");
  report.options["autoReport.outputExecutionProfile"] = "false";
  expect("No run is recorded: autoReport.outputExecutionProfile was not set.");
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

TEST(ViewsTest, InsightsNameWhatLimits) {
  const std::string text = Text(Insights(Pipeline()));
  EXPECT_THAT(text, testing::ContainsRegex("IPU [01] is idle for [0-9]+ % of a run"));

  const pva::Report again = ReportOf({.ipus = 1, .recomputation = Recomputation::kAll});
  EXPECT_THAT(Text(Insights(again)), HasSubstr("computing activations again"));
}

TEST(ViewsTest, InsightsFollowWhatIsInMemory) {
  const std::string waiting = "Results of the forward pass that wait for their gradients take ",
                    kept = Text(Insights(ReportOf({.ipus = 1, .micro_batch = 192})));
  EXPECT_THAT(kept, HasSubstr("IPU 0 is out of memory: "));
  EXPECT_THAT(kept, HasSubstr("Float32 takes "));
  EXPECT_THAT(kept,
              testing::ContainsRegex(
                  waiting + ".* To try: recomputation \\(option recomputation\\), or a smaller"));
  EXPECT_THAT(kept, Not(HasSubstr("The state of the optimiser")));

  const std::string half =
      Text(Insights(ReportOf({.ipus = 1, .micro_batch = 384, .type = FLOAT16})));
  EXPECT_THAT(half, HasSubstr(waiting));
  EXPECT_THAT(half, Not(HasSubstr("loat16 would save")));

  const std::string norms = Text(Insights(
      ReportOf({.ipus = 1, .micro_batch = 192, .recomputation = Recomputation::kNormOnly})));
  EXPECT_THAT(norms, testing::ContainsRegex(
                         waiting + ".* To try: more recomputation \\(option recomputation\\), or"));
  const std::string all = Text(
      Insights(ReportOf({.ipus = 1, .micro_batch = 384, .recomputation = Recomputation::kAll})));
  EXPECT_THAT(all, Not(HasSubstr(waiting)));

  const std::string adam = Text(
      Insights(ReportOf({.ipus = 1, .micro_batch = 96, .optimizer = compiler::AdamOptions{}})));
  EXPECT_THAT(adam, HasSubstr("The state of the optimiser takes "));
}

TEST(ViewsTest, NothingIsAdvisedWhereThereIsRoom) {
  const auto notes = Find(Insights(Pipeline()), "Memory")["notes"];
  ASSERT_EQ(notes.size(), 2u);
  for (const std::string note : notes)
    EXPECT_THAT(note, testing::ContainsRegex("^IPU [01] needs .* MB; its fullest tile, [0-9]+, "
                                             "uses [0-9]+ % of its memory: there is room for "
                                             "more\\.$"));
  EXPECT_EQ(PercentText(0.4), "less than 1 %");
  EXPECT_EQ(PercentText(54.4), "54 %");
}

TEST(ViewsTest, TrafficWithStreamingMemoryIsShown) {
  const pva::Report report = ReportOf({.ipus = 1,
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
    cycles += operation.all_cycles().total();
  }
  ASSERT_GT(bytes, 0u);
  const auto row = Rows(Summary(report), "Streaming memory of a replica in a run")[0];
  EXPECT_EQ(row["From it (bytes)"].get<uint64_t>() + row["To it (bytes)"].get<uint64_t>(), bytes);
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
              HasSubstr("the state shared out among replicas (option tensor_shards)"));
  EXPECT_THAT(Text(Summary(Pipeline())), Not(HasSubstr("Streaming memory")));
  EXPECT_THAT(Text(Insights(Pipeline())), Not(HasSubstr("streaming memory")));
}

TEST(ViewsTest, DiffShowsBothAndTheChange) {
  const pva::Report kept = ReportOf({.ipus = 1, .micro_batch = 32}),
                    again = ReportOf(
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
  for (uint32_t ipu : {0, 1}) {
    const double end =
        1e6 * static_cast<double>(Pipeline().steps[ipu].back().to) / Pipeline().target.clock_hz;
    EXPECT_NEAR(ends[static_cast<int>(ipu)], end, 1e-3);
    EXPECT_NEAR(sums[static_cast<int>(ipu)], end, 0.1);
  }
}

}  // namespace
}  // namespace vpod::popvision
