// Which outputs of its micro-batches a run gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::BOOL;
using program::v1::FLOAT32;
using program::v1::INT32;
using program::v1::TANH;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr uint32_t kReplicas = 2;

struct Case {
  uint32_t ipus = 1;
  Schedule schedule = Schedule::kSharded;
  bool trains = false;
  uint32_t iterations = 12;
};

uint32_t AccumulationOf(const Case& test) { return test.trains ? 7 : 1; }

// The outputs "x", which is a buffer before it counts, "sum" of the first stage, and "loss" of the
// last, replica by replica.
using Outputs = std::map<std::string, std::vector<std::vector<float>>>;

Outputs RunWith(const Case& test, OutputMode mode, uint32_t period = 1,
                const std::map<std::string, OutputMode>& own = {}) {
  Graph g;
  const Tensor x = g.Input("x", {FLOAT32, {2, 3}});
  const Tensor count = g.Buffer("count", {FLOAT32, {}}, {0});
  g.Output("count", count);
  g.Assign(count, g.Add(count, g.Constant({FLOAT32, {}}, 1)));
  g.Output("first", g.Unary(TANH, x));
  Tensor y = x;
  for (uint32_t stage = 0; stage < test.ipus; ++stage) {
    g.SetIpu(stage);
    g.SetStage(stage);
    y = g.Unary(TANH, g.MatMul(y, g.Variable(absl::StrCat("w", stage), {FLOAT32, {3, 3}},
                                             RandomValues(9, stage))));
  }
  const Tensor loss = g.Mean(g.Multiply(y, y));
  g.Output("loss", loss);
  ProgramSpec spec{.name = "run",
                   .device_iterations = test.iterations,
                   .accumulation = AccumulationOf(test),
                   .output_mode = mode,
                   .output_period = period,
                   .output_modes = own};
  if (test.trains) {
    spec.loss = loss;
    spec.optimizer = SgdOptions{};
  }
  const auto compiled = Compile(g, {.ipus_per_replica = test.ipus,
                                    .total_replicas = kReplicas,
                                    .schedule = test.schedule,
                                    .programs = {spec}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  Outputs outputs;
  if (!compiled.ok()) return outputs;
  auto session = session::Session::Create(
      *session::CreateIpuModel(
          {.replicas = kReplicas, .ipus_per_replica = test.ipus, .compute_threads = 2}),
      *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return outputs;
  for (uint32_t run = 0; run < 2; ++run) {
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      const auto input = *(*session)->Stream<float>("x", replica);
      const auto values = RandomValues(input.size(), 10 * run + replica);
      std::copy(values.begin(), values.end(), input.begin());
    }
    const auto cycles = (*session)->Run("run");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    for (const char* name : {"count", "first", "loss"}) {
      for (uint32_t replica = 0; replica < kReplicas; ++replica) {
        const auto output = *(*session)->Stream<float>(name, replica);
        outputs[name].emplace_back(output.begin(), output.end());
      }
    }
  }
  return outputs;
}

class OutputModeTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, OutputModeTest,
                         testing::Values(Case{}, Case{.trains = true},
                                         Case{2, Schedule::kSharded, true},
                                         Case{2, Schedule::kGrouped}, Case{4, Schedule::kGrouped},
                                         Case{4, Schedule::kGrouped, true},
                                         Case{4, Schedule::kInterleaved, true},
                                         Case{2, Schedule::kSequential}));

// The elements of `all` that micro-batches with these numbers gave.
std::vector<float> Of(const std::vector<float>& all, uint32_t micro_batches,
                      const std::vector<uint32_t>& numbers) {
  const size_t size = all.size() / micro_batches;
  std::vector<float> chosen;
  for (uint32_t number : numbers)
    chosen.insert(chosen.end(), all.begin() + static_cast<ptrdiff_t>(number * size),
                  all.begin() + static_cast<ptrdiff_t>((number + 1) * size));
  return chosen;
}

void ExpectChosen(const Case& test, const Outputs& all, const Outputs& outputs,
                  const std::vector<uint32_t>& numbers) {
  for (const auto& [name, by_replica] : all) {
    for (size_t i = 0; i < by_replica.size(); ++i) {
      EXPECT_THAT(
          outputs.at(name)[i],
          ElementsAreArray(Of(by_replica[i], test.iterations * AccumulationOf(test), numbers)))
          << name << " " << i;
    }
  }
}

TEST_P(OutputModeTest, FinalAndEveryNChooseMicroBatches) {
  const Case& test = GetParam();
  const uint32_t accumulation = AccumulationOf(test), all_of_run = test.iterations * accumulation;
  const Outputs all = RunWith(test, OutputMode::kAll);
  EXPECT_NE(all.at("loss")[0].front(), all.at("loss")[0].back());
  ExpectChosen(test, all, RunWith(test, OutputMode::kFinal), {all_of_run - 1});
  for (uint32_t period : {1u, 2u, 3u, 12u}) {
    SCOPED_TRACE(absl::StrCat("period ", period));
    std::vector<uint32_t> numbers;
    for (uint32_t number = 0; number < all_of_run; ++number) {
      if ((number / accumulation + 1) % period == 0) numbers.push_back(number);
    }
    ExpectChosen(test, all, RunWith(test, OutputMode::kEveryN, period), numbers);
  }
}

TEST_P(OutputModeTest, SumAddsInTheOrderOfMicroBatches) {
  const Case& test = GetParam();
  const uint32_t micro_batches = test.iterations * AccumulationOf(test);
  const Outputs all = RunWith(test, OutputMode::kAll), sums = RunWith(test, OutputMode::kSum);
  for (const auto& [name, by_replica] : all) {
    for (size_t i = 0; i < by_replica.size(); ++i) {
      std::vector<float> expected(by_replica[i].size() / micro_batches);
      for (size_t at = 0; at < by_replica[i].size(); ++at)
        expected[at % expected.size()] += by_replica[i][at];
      EXPECT_THAT(sums.at(name)[i], ElementsAreArray(expected)) << name << " " << i;
    }
  }
}

TEST_P(OutputModeTest, EachOutputMayHaveItsOwn) {
  const Case& test = GetParam();
  std::map<OutputMode, Outputs> alone;
  for (OutputMode mode : {OutputMode::kAll, OutputMode::kFinal, OutputMode::kSum})
    alone[mode] = RunWith(test, mode);
  alone[OutputMode::kEveryN] = RunWith(test, OutputMode::kEveryN, 3);
  const std::map<std::string, OutputMode> mixtures[] = {
      {{"count", OutputMode::kAll}, {"first", OutputMode::kEveryN}, {"loss", OutputMode::kFinal}},
      {{"count", OutputMode::kSum}, {"first", OutputMode::kAll}, {"loss", OutputMode::kEveryN}},
      {{"count", OutputMode::kEveryN}, {"first", OutputMode::kSum}, {"loss", OutputMode::kAll}}};
  for (const auto& own : mixtures) {
    for (OutputMode of_others : {OutputMode::kAll, OutputMode::kFinal, OutputMode::kEveryN}) {
      const Outputs outputs = RunWith(test, of_others, 3, own);
      for (const auto& [name, mode] : own)
        EXPECT_EQ(outputs.at(name), alone[mode].at(name)) << name;
    }
  }
  const Outputs one = RunWith(test, OutputMode::kEveryN, 3, {{"loss", OutputMode::kFinal}});
  EXPECT_EQ(one.at("count"), alone[OutputMode::kEveryN].at("count"));
  EXPECT_EQ(one.at("loss"), alone[OutputMode::kFinal].at("loss"));
}

TEST(OutputModeErrorsTest, AreNamed) {
  const auto refused = [](OutputMode mode, uint32_t period, uint32_t iterations,
                          const std::string& message,
                          const std::map<std::string, OutputMode>& own = {}) {
    Graph g;
    g.Output("flags", g.Cast(g.Input("x", {FLOAT32, {2}}), BOOL));
    const auto compiled = Compile(g, {.programs = {{.name = "run",
                                                    .device_iterations = iterations,
                                                    .output_mode = mode,
                                                    .output_period = period,
                                                    .output_modes = own}}});
    EXPECT_THAT(std::string(compiled.status().message()), HasSubstr(message));
  };
  refused(OutputMode::kEveryN, 0, 4, "program 'run': output_period is 0, must divide the 4 device");
  refused(OutputMode::kEveryN, 3, 4, "program 'run': output_period is 3, must divide the 4 device");
  refused(OutputMode::kEveryN, 8, 4, "output_period is 8, must divide the 4 device iterations");
  for (const OutputMode other : {OutputMode::kAll, OutputMode::kFinal, OutputMode::kSum}) {
    refused(other, 2, 4,
            "program 'run': output_period is 2, which only output_mode every-n has; leave it at 1 "
            "or choose that mode");
  }
  refused(OutputMode::kSum, 1, 4, "output 'flags' of bool[2] has no sum: must be float or int32");
  refused(OutputMode::kAll, 1, 4, "output 'flags' of bool[2] has no sum: must be float or int32",
          {{"flags", OutputMode::kSum}});
  refused(OutputMode::kFinal, 3, 4, "output_period is 3, must divide the 4 device iterations",
          {{"flags", OutputMode::kEveryN}});
  refused(OutputMode::kAll, 1, 4, "program 'run': output_modes names 'y', which is not an output",
          {{"y", OutputMode::kFinal}});
}

}  // namespace
}  // namespace vpod::compiler
