// Profiles hold what the model of the hardware says, and each number agrees with the others.
#include "client/profile/profile.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/resnet.h"
#include "client/pva/pva.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/model/tile_memory.h"
#include "device/program/control_program.h"
#include "device/program/executable.h"

namespace vpod::profile {
namespace {

using compiler::Schedule;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::HasSubstr;

// Sets the options of the engine for a test.
class EngineOptionsGuard {
 public:
  explicit EngineOptionsGuard(const std::string& json) {
    setenv("POPLAR_ENGINE_OPTIONS", json.c_str(), 1);
  }
  ~EngineOptionsGuard() { unsetenv("POPLAR_ENGINE_OPTIONS"); }
};

std::string All(const std::string& directory) {
  return absl::StrCat(R"({"autoReport.all": "true", "autoReport.directory": ")", directory,
                      R"("})");
}

std::string TestDirectory() {
  std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(name.begin(), name.end(), '/', '_');  // of tests with parameters
  const std::string directory = absl::StrCat(testing::TempDir(), "/", name);
  std::filesystem::remove_all(directory);
  return directory;
}

// ResNet-18 for small images, on some IPUs, and a program without training.
compiler::Compiled Compile(uint32_t ipus, Schedule schedule = Schedule::kGrouped,
                           uint32_t accumulation = 7, int64_t micro_batch = 1) {
  Graph g;
  const nn::Builder net(g, {.seed = 3, .training = true});
  models::ResNetOptions options = models::ResNet18();
  options.small_images = true;
  options.classes = 10;
  if (ipus == 2) options.stages = {"layer3.0"};
  if (ipus == 4) options.stages = {"layer2.0", "layer3.0", "layer4.0"};
  const Tensor logits =
      models::ResNet(net, g.Input("images", {FLOAT32, {micro_batch, 3, 32, 32}}), options);
  const Tensor labels = g.Input("labels", {INT32, {micro_batch}});
  const Tensor loss = g.Mean(g.SoftmaxCrossEntropy(logits, labels));
  g.Output("loss", loss);
  compiler::CompileOptions compile{.ipus_per_replica = ipus, .schedule = schedule};
  compile.programs = {{.name = "train/one",
                       .accumulation = accumulation,
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{}},
                      {.name = "evaluate", .device_iterations = 4}};
  auto compiled = compiler::Compile(g, compile);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

absl::StatusOr<std::unique_ptr<session::Session>> Open(const compiler::Compiled& compiled) {
  auto device = session::CreateIpuModel(
      {.ipus_per_replica = compiled.executable->ipus_per_replica(), .compute_threads = 2});
  return session::Session::Create(*std::move(device), compiled);
}

// Bytes that each tile needs at most, by the variables and steps of the report.
std::vector<uint64_t> MostByTile(const pva::Report& report, uint32_t ipu) {
  const std::vector<pva::LivenessStep>& steps = report.liveness[ipu];
  std::vector<uint64_t> most(report.target.tiles_per_ipu);
  for (uint32_t step = 0; step < steps.size(); ++step) {
    std::vector<uint64_t> now(most.size(), steps[step].temporary_per_tile);
    uint64_t all = 0;
    for (const pva::Variable& variable : report.variables) {
      if (variable.ipu != ipu || variable.always_live || variable.first_step > step ||
          variable.last_step < step)
        continue;
      for (uint32_t i = 0; i < variable.tiles; ++i)
        now[(variable.first_tile + i) % now.size()] += variable.bytes_per_tile;
      all += variable.tiles * variable.bytes_per_tile;
    }
    EXPECT_EQ(steps[step].not_always_live, all) << step;
    for (size_t tile = 0; tile < most.size(); ++tile) most[tile] = std::max(most[tile], now[tile]);
  }
  return most;
}

// Bytes of the variables that are always live on each tile.
std::vector<uint64_t> AlwaysByTile(const pva::Report& report, uint32_t ipu) {
  std::vector<uint64_t> always(report.target.tiles_per_ipu);
  for (const pva::Variable& variable : report.variables) {
    if (variable.ipu != ipu || !variable.always_live) continue;
    for (uint32_t i = 0; i < variable.tiles; ++i)
      always[(variable.first_tile + i) % always.size()] += variable.bytes_per_tile;
  }
  return always;
}

// Three runs of both programs of a network on some IPUs.
struct Runs {
  compiler::Compiled compiled;
  std::map<std::string, base::Cycles> cycles;  // that the device counted, by program
  std::map<std::string, pva::Report> reports;
};
Runs RunBoth(uint32_t ipus) {
  const std::string directory = TestDirectory();
  const EngineOptionsGuard options(All(directory));
  Runs runs{.compiled = Compile(ipus)};
  auto session = Open(runs.compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  for (int run = 0; run < 3; ++run) {
    for (const char* program : {"train/one", "evaluate"}) {
      const auto ran = (*session)->Run(program);
      EXPECT_TRUE(ran.ok()) << ran.status();
      runs.cycles[program] = *ran;
    }
  }
  for (const char* folder : {"train_one", "evaluate"}) {
    auto report = pva::OpenReport(absl::StrCat(directory, "/", folder));
    EXPECT_TRUE(report.ok()) << report.status();
    const std::string name = report->meta.at("program");
    runs.reports.emplace(name, *std::move(report));
  }
  return runs;
}

class ProfileOfIpusTest : public testing::TestWithParam<uint32_t> {
 protected:
  // All tests look at the same runs, one set for each number of IPUs.
  static const Runs& OfIpus(uint32_t ipus) {
    static auto* const all = new std::map<uint32_t, Runs>;
    const auto found = all->find(ipus);
    return found != all->end() ? found->second : all->emplace(ipus, RunBoth(ipus)).first->second;
  }
  const Runs& runs_ = OfIpus(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, ProfileOfIpusTest, testing::Values(1, 2, 4));

// Two runs are recorded, each with the cycles that the device counted, which the steps have.
TEST_P(ProfileOfIpusTest, RunsTakeTheCyclesOfTheDevice) {
  ASSERT_EQ(runs_.reports.size(), 2u);
  for (const auto& [program, report] : runs_.reports) {
    SCOPED_TRACE(program);
    EXPECT_EQ(report.target.ipus_per_replica, GetParam());
    EXPECT_EQ(report.target.type, "IPU_MODEL");
    EXPECT_EQ(report.options.at("autoReport.all"), "true");
    ASSERT_EQ(report.runs.size(), 2u);
    EXPECT_EQ(report.runs[1].cycles, runs_.cycles.at(program).value());
    EXPECT_EQ(report.planned_cycles(), runs_.cycles.at(program).value());
  }
}

TEST_P(ProfileOfIpusTest, StepsAreTheExecutionsOfOperations) {
  for (const auto& [program, report] : runs_.reports) {
    for (uint32_t ipu = 0; ipu < GetParam(); ++ipu) {
      SCOPED_TRACE(absl::StrCat(program, " IPU ", ipu));
      uint64_t clock = 0, waiting = 0, all = 0;
      std::vector<uint64_t> executions(report.operations.size());
      for (const pva::Step& step : report.steps[ipu]) {
        EXPECT_EQ(step.from, clock);
        EXPECT_EQ(step.to - step.from - step.waiting,
                  report.operations[step.operation].cycles.total());
        clock = step.to;
        waiting += step.waiting;
        ++executions[step.operation];
      }
      for (size_t i = 0; i < executions.size(); ++i) {
        if (report.operations[i].ipu != ipu) continue;
        EXPECT_EQ(executions[i], report.operations[i].executions) << report.operations[i].name;
        all += report.operations[i].all_cycles().total();
      }
      EXPECT_EQ(clock, all + waiting);
    }
  }
}

// Values that stages hand on from one round of a loop to the next are not those of the counters
// with which a round begins.
TEST_P(ProfileOfIpusTest, CountersMakeScalarsInNoPhase) {
  for (const auto& [program, report] : runs_.reports) {
    SCOPED_TRACE(program);
    for (const pva::Variable& variable : report.variables) {
      if (variable.operation && report.operations[*variable.operation].op == "counter") {
        EXPECT_LE(variable.bytes, 4u) << variable.name;
      }
    }
    for (const pva::Operation& operation : report.operations) {
      if (operation.op == "counter") {
        EXPECT_EQ(operation.phase, "") << operation.name;
      }
    }
  }
}

TEST_P(ProfileOfIpusTest, CategoriesAddUpToWhatTilesNeed) {
  for (uint32_t ipu = 0; ipu < GetParam(); ++ipu) {
    SCOPED_TRACE(ipu);
    const model::IpuMemory memory = model::PlanMemory(runs_.compiled.executable->proto(), ipu,
                                                      {.ipus_per_replica = GetParam()});
    std::vector<uint64_t> most;  // of the tiles, in any program
    for (const auto& [program, report] : runs_.reports) {
      const std::vector<uint64_t> tiles = report.BytesByTile(ipu);
      for (size_t tile = 0; tile < tiles.size(); ++tile)
        EXPECT_EQ(tiles[tile], memory.tiles[tile].total());
      EXPECT_EQ(report.BytesByTile(ipu, "always live"), AlwaysByTile(report, ipu));
      const std::vector<uint64_t> of_program = MostByTile(report, ipu);
      most.resize(of_program.size());
      for (size_t tile = 0; tile < most.size(); ++tile)
        most[tile] = std::max(most[tile], of_program[tile]);
    }
    for (const auto& [program, report] : runs_.reports)
      EXPECT_EQ(report.BytesByTile(ipu, "not always live"), most) << program;
  }
}

// train/one has 7 micro-batches in a run, evaluate 4 iterations.
TEST_P(ProfileOfIpusTest, StreamsMoveTheBytesOfTheOperations) {
  const uint64_t image = 3 * 32 * 32 * sizeof(float);
  for (const auto& [program, micro_batches] :
       {std::pair<std::string, uint64_t>{"train/one", 7}, {"evaluate", 4}}) {
    SCOPED_TRACE(program);
    const pva::Report& report = runs_.reports.at(program);
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> streams, operations;  // by IPU: from, to
    std::map<std::string, uint64_t> by_name;
    for (const pva::Stream& stream : report.streams) {
      by_name[stream.name] = stream.bytes;
      auto& [from_host, to_host] = streams[stream.ipu];
      (stream.to_device ? from_host : to_host) += stream.bytes;
    }
    for (const pva::Operation& operation : report.operations) {
      if (operation.from_host + operation.to_host == 0) continue;
      auto& [from_host, to_host] = operations[operation.ipu];
      from_host += operation.from_host * operation.executions;
      to_host += operation.to_host * operation.executions;
    }
    EXPECT_EQ(streams, operations);
    EXPECT_EQ(by_name.at("images"), micro_batches * image);
    EXPECT_EQ(by_name.at("labels"), micro_batches * sizeof(int32_t));
    EXPECT_EQ(by_name.at("loss"), micro_batches * sizeof(float));
  }
}

// The steps of operations on the tiles add up to their price, but for control code.
TEST(ProfileTest, StepsOnTilesAreThoseOfTheirOperation) {
  const std::string directory = TestDirectory();
  const EngineOptionsGuard options(All(directory));
  ASSERT_TRUE(Open(Compile(2)).ok());
  const auto report = pva::OpenReport(directory + "/train_one");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->steps[0].empty() && report->runs.empty());  // nothing ran
  std::map<uint32_t, pva::CycleSplit> sums;
  uint64_t compute_sets = 0, vertices = 0;
  for (const pva::Program& program : report->programs) {
    if (program.vertices > 0) {
      ++compute_sets;
      vertices += program.vertices;
      EXPECT_GE(program.tile_balance, 0);
      EXPECT_LE(program.tile_balance, 1);
      uint64_t slowest = 0;
      for (const pva::TileRun& run : program.cycles_by_tile) slowest = std::max(slowest, run.value);
      EXPECT_EQ(slowest * program.times, program.cycles.compute);
    }
    if (!program.parent || program.operation) continue;
    const auto& parent = report->programs[*program.parent];
    if (!parent.operation) continue;
    pva::CycleSplit& sum = sums[*parent.operation];
    sum.compute += program.cycles.compute;
    sum.exchange += program.cycles.exchange;
    sum.sync += program.cycles.sync;
  }
  EXPECT_EQ(report->graph.num_compute_sets, compute_sets);
  EXPECT_EQ(report->graph.num_vertices, vertices);
  for (const auto& [number, sum] : sums) {
    const pva::Operation& operation = report->operations[number];
    EXPECT_EQ(operation.cycles.exchange, sum.exchange) << operation.name;
    EXPECT_EQ(operation.cycles.sync, sum.sync) << operation.name;
    EXPECT_GE(operation.cycles.compute, sum.compute) << operation.name;
  }
}

TEST(ProfileTest, WhatDoesNotFitHasAGraphProfile) {
  const std::string directory = TestDirectory();
  const EngineOptionsGuard options(
      absl::StrCat(R"({"autoReport.outputGraphProfile": "true", "autoReport.directory": ")",
                   directory, R"("})"));
  ASSERT_TRUE(Open(Compile(1, Schedule::kSharded, 1, /*micro_batch=*/192)).ok());
  const auto report = pva::OpenReport(directory + "/train_one/profile.pop");
  ASSERT_TRUE(report.ok()) << report.status();
  const auto tiles = report->BytesByTile(0);
  EXPECT_GT(*std::max_element(tiles.begin(), tiles.end()), report->target.bytes_per_tile);
}

TEST(ProfileTest, ADirectoryThatCannotBeMadeIsNamed) {
  const EngineOptionsGuard options(All("/proc/report"));
  EXPECT_THAT(std::string(Open(Compile(1, Schedule::kSharded, 1)).status().message()),
              HasSubstr("cannot make the directory /proc/report/train_one: "));
}

TEST(ProfileTest, EachOptionHasItsEffectBesideAll) {
  const compiler::Compiled compiled = Compile(1, Schedule::kSharded, 1);
  const std::string directory = TestDirectory();
  const auto run = [&](const std::string& options) {
    std::filesystem::remove_all(directory);
    const EngineOptionsGuard guard(
        absl::StrCat(R"({"autoReport.directory": ")", directory, R"(", )", options, "}"));
    const auto session = Open(compiled);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE((*session)->Run("evaluate").ok());
  };
  const auto runs = [&] { return pva::OpenReport(directory + "/evaluate")->runs.size(); };
  run(R"("autoReport.all": "true", "autoReport.outputGraphProfile": "false")");
  EXPECT_FALSE(std::filesystem::exists(directory));
  run(R"("autoReport.all": "true", "autoReport.outputExecutionProfile": "false")");
  EXPECT_EQ(runs(), 0u);
  run(R"("autoReport.outputGraphProfile": "true")");
  EXPECT_EQ(runs(), 0u);
  run(R"("autoReport.outputExecutionProfile": "true")");
  EXPECT_EQ(runs(), 1u);
}

// The contents of the variables of a small program that trains, by name.
std::map<std::string, std::string> Contents(uint32_t replicas) {
  const std::string directory = TestDirectory();
  const EngineOptionsGuard options(All(directory));
  Graph g;
  Tensor x = g.Input("x", {FLOAT32, {4, 64}});
  for (const char* name : {"v", "w"})
    x = g.Unary(program::v1::TANH,
                g.MatMul(x, g.Variable(name, {FLOAT32, {64, 64}}, graph::InitialValue::Filled(1))));
  const Tensor loss = g.Mean(x);
  g.Output("loss", loss);
  compiler::CompileOptions compile{.total_replicas = replicas, .tensor_shards = replicas};
  compile.programs = {
      {.name = "train", .accumulation = 2, .loss = loss, .optimizer = compiler::AdamOptions{}}};
  const auto compiled = compiler::Compile(g, compile);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  auto device = session::CreateIpuModel({.replicas = replicas, .compute_threads = 2});
  EXPECT_TRUE(session::Session::Create(*std::move(device), *compiled).ok());
  const auto report = pva::OpenReport(directory + "/train");
  EXPECT_TRUE(report.ok()) << report.status();
  std::map<std::string, std::string> contents;
  for (const pva::Variable& variable : report->variables)
    contents[variable.name] = variable.contents;
  return contents;
}

// Also where each replica updates a part.
TEST(ProfileTest, VariablesTellWhatTheyAreFor) {
  for (uint32_t replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    auto contents = Contents(replicas);
    EXPECT_EQ(contents["w"], "weight");
    EXPECT_EQ(contents["Accl1___w"], "optimizer state");
    EXPECT_EQ(contents["Accl2___w"], "optimizer state");
    EXPECT_EQ(contents[compiler::HyperParametersName(0)], "other");
    std::set<std::string> all;
    for (const auto& [name, of] : contents) all.insert(of);
    for (const char* each : {"accumulator", "kept", "value"})
      EXPECT_TRUE(all.contains(each)) << each;
  }
}

// Steps and executions are those of the plan, whose conditions hold; the cycles of a run are its
// own.
TEST(ProfileTest, AnIfIsPlannedWithItsFirstSide) {
  program::v1::Executable text;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(program::kControlProgram, &text));
  const compiler::Compiled compiled{.executable = *program::Executable::Make(std::move(text))};
  const std::string directory = TestDirectory();
  const EngineOptionsGuard options(All(directory));
  auto session = Open(compiled);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<uint64_t> cycles;
  for (const char more : {'\1', '\0'}) {
    ASSERT_TRUE((*session)->WriteBytes("more", std::string(1, more)).ok());
    const auto ran = (*session)->Run("branch");
    ASSERT_TRUE(ran.ok()) << ran.status();
    cycles.push_back(ran->value());
  }
  session->reset();
  const auto report = pva::OpenReport(directory + "/branch");
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, uint64_t> executions, times;
  for (const pva::Operation& operation : report->operations)
    executions[operation.instruction] = operation.executions;
  for (const pva::Program& program : report->programs) {
    if (program.type == "Call") times[program.name] = program.times;
  }
  EXPECT_EQ(executions, (std::map<std::string, uint64_t>{{"if", 1}, {"add", 1}, {"fill", 0}}));
  EXPECT_EQ(times, (std::map<std::string, uint64_t>{{"then", 1}, {"else", 0}}));
  EXPECT_EQ(report->steps[0].size(), 2u);
  EXPECT_EQ(report->planned_cycles(), cycles[0]);
  ASSERT_EQ(report->runs.size(), 2u);
  for (size_t run : {0, 1}) EXPECT_EQ(report->runs[run].cycles, cycles[run]);
}

TEST(ProfileTest, NoProfileWithoutOptions) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Open(Compile(1, Schedule::kSharded, 1)).ok());
  EXPECT_FALSE(std::filesystem::exists(directory));
}

}  // namespace
}  // namespace vpod::profile
