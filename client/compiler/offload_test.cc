// Activations and weights in streaming memory: nothing changes but where they lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using v1::FLOAT16;
using v1::FLOAT32;

// Activations are the largest part of what is kept; weights of float16 have 16 KiB and more.
constexpr int64_t kBatch = 256, kWidth = 96;
constexpr uint32_t kLayers = 8, kMicroBatches = 8;

struct Case {
  v1::DataType type = FLOAT32;
  uint32_t ipus = 1;
  Schedule schedule = Schedule::kSharded;
  Recomputation recomputation = Recomputation::kNone;
  uint32_t accumulation = kMicroBatches;  // 1: a variable is updated as soon as it can be
  GradientReduction reduction = GradientReduction::kMean;
};

struct Result {
  std::vector<float> losses, weights;
  uint64_t arena_bytes = 0;                    // of the largest IPU
  uint32_t stashes = 0, remote_variables = 0;  // remote buffers
  std::vector<std::string> host_tensors;
};

enum class OffChip { kNothing, kActivations, kWeights, kAccumulators, kAll };

Result Train(const Case& test, OffChip off_chip) {
  Graph g;
  Tensor x = g.Cast(g.Input("x", {FLOAT32, {kBatch, kWidth}}), test.type);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    g.SetIpu(layer * test.ipus / kLayers);
    g.SetStage(layer * test.ipus / kLayers);
    const Tensor w = g.Variable(absl::StrCat("w", layer), {test.type, {kWidth, kWidth}},
                                RandomValues(kWidth * kWidth, layer));
    x = g.Unary(v1::TANH, g.MatMul(x, g.Multiply(w, g.Constant({test.type, {}}, 0.25))));
    if (layer == 3) x = g.Dropout(x, 0.25f);
  }
  const Tensor loss = g.Mean(g.Cast(g.Multiply(x, x), FLOAT32));
  g.Output("loss", loss);
  CompileOptions options{.ipus_per_replica = test.ipus, .schedule = test.schedule};
  options.recomputation = test.recomputation;
  options.off_chip_activations = off_chip == OffChip::kActivations || off_chip == OffChip::kAll;
  options.off_chip_weights = off_chip == OffChip::kWeights || off_chip == OffChip::kAll;
  options.off_chip_accumulators = off_chip == OffChip::kAccumulators || off_chip == OffChip::kAll;
  options.off_chip_optimizer_state = off_chip == OffChip::kAll;
  options.programs = {{.name = "train",
                       .device_iterations = kMicroBatches / test.accumulation,
                       .accumulation = test.accumulation,
                       .loss = loss,
                       .optimizer = SgdOptions{.learning_rate = 0.5f, .momentum = 0.9f},
                       .reduction = test.reduction},
                      {.name = "evaluate", .device_iterations = kMicroBatches}};
  Result result;
  const auto compiled = Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return result;
  for (const v1::Ipu& ipu : compiled->executable->proto().ipus()) {
    result.arena_bytes = std::max(result.arena_bytes, ipu.arena_bytes());
    for (const v1::RemoteBuffer& buffer : ipu.remote_buffers()) {
      if (absl::StartsWith(buffer.name(), "train/stash/"))
        ++result.stashes;
      else
        ++result.remote_variables;
    }
  }
  for (const auto& tensor : compiled->executable->host_tensors())
    result.host_tensors.push_back(tensor.name);
  auto session = session::Session::Create(
      *session::CreateIpuModel({.ipus_per_replica = test.ipus, .compute_threads = 2}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return result;
  for (uint32_t run = 0; run < 2; ++run) {
    const auto input = *(*session)->Stream<float>("x", 0);
    const auto values = RandomValues(input.size(), 100 + run);
    std::copy(values.begin(), values.end(), input.begin());
    for (const char* program : {"train", "evaluate"}) {
      const auto cycles = (*session)->Run(program);
      EXPECT_TRUE(cycles.ok()) << cycles.status();
      const auto losses = *(*session)->Stream<float>("loss", 0);
      result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    }
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const auto weights = *(*session)->ReadFloats(absl::StrCat("w", layer));
    result.weights.insert(result.weights.end(), weights.begin(), weights.end());
  }
  return result;
}

TEST(OffloadTest, ResultsAreThoseOfActivationsOnTheChip) {
  for (v1::DataType type : {FLOAT32, FLOAT16}) {
    for (const Case& test : {Case{type}, Case{.type = type, .accumulation = 1},
                             Case{type, 1, Schedule::kSharded, Recomputation::kStandard},
                             Case{.type = type, .reduction = GradientReduction::kRunningMean},
                             Case{type, 4, Schedule::kSharded}, Case{type, 4, Schedule::kGrouped},
                             Case{type, 4, Schedule::kInterleaved},
                             Case{type, 4, Schedule::kGrouped, Recomputation::kPipeline}}) {
      SCOPED_TRACE(absl::StrCat(
          v1::DataType_Name(type), ", ", test.ipus, " IPUs, schedule ",
          static_cast<int>(test.schedule), ", recomputation ", static_cast<int>(test.recomputation),
          ", accumulation ", test.accumulation, ", reduction ", static_cast<int>(test.reduction)));
      const Result on_chip = Train(test, OffChip::kNothing),
                   off_chip = Train(test, OffChip::kActivations),
                   weights = Train(test, OffChip::kWeights),
                   accumulators = Train(test, OffChip::kAccumulators),
                   all = Train(test, OffChip::kAll);
      EXPECT_NE(on_chip.losses.front(), on_chip.losses.back());
      EXPECT_EQ(off_chip.losses, on_chip.losses);
      EXPECT_EQ(off_chip.weights, on_chip.weights);
      EXPECT_EQ(off_chip.host_tensors, on_chip.host_tensors);
      for (const Result* result : {&weights, &accumulators, &all}) {
        EXPECT_EQ(result->losses, on_chip.losses);
        EXPECT_EQ(result->weights, on_chip.weights);
        EXPECT_THAT(result->host_tensors, testing::UnorderedElementsAreArray(on_chip.host_tensors));
      }
      if (test.schedule == Schedule::kSharded) {
        Case phased = test;
        phased.schedule = Schedule::kPhased;
        const Result result = Train(phased, OffChip::kNothing);
        EXPECT_EQ(result.losses, on_chip.losses);
        EXPECT_EQ(result.weights, on_chip.weights);
        EXPECT_EQ(result.stashes, all.stashes);
        EXPECT_EQ(result.remote_variables, all.remote_variables);
      }
      EXPECT_EQ(on_chip.remote_variables, 0u);
      EXPECT_EQ(weights.remote_variables, kLayers);
      EXPECT_EQ(all.remote_variables, 2 * kLayers);  // with the momentum
      EXPECT_EQ(on_chip.stashes, 0u);
      EXPECT_GT(off_chip.stashes, 0u);
      EXPECT_EQ(accumulators.stashes, test.accumulation > 1 ? kLayers : 0u);
      // Recomputed values take up most of the chip.
      if (test.recomputation == Recomputation::kNone && test.accumulation > 1) {
        EXPECT_LT(off_chip.arena_bytes, on_chip.arena_bytes);
        EXPECT_LT(accumulators.arena_bytes, on_chip.arena_bytes);
      }
    }
  }
}

// A pipeline sends them once, before the accumulators are in use.
TEST(OffloadTest, WeightsOfOtherIpusAreNoAccumulators) {
  Graph g;
  Tensor x = g.Input("x", {FLOAT32, {kBatch, kWidth}});
  const Tensor w = g.Variable("w", {FLOAT32, {kWidth, kWidth}}, RandomValues(kWidth * kWidth, 1));
  for (uint32_t stage : {0, 1}) {
    g.SetIpu(stage);
    g.SetStage(stage);
    x = g.Unary(v1::TANH, g.MatMul(x, w));
  }
  const Tensor loss = g.Mean(x);
  g.Output("loss", loss);
  CompileOptions options{.ipus_per_replica = 2, .schedule = Schedule::kGrouped};
  options.off_chip_accumulators = true;
  options.programs = {
      {.name = "train", .accumulation = kMicroBatches, .loss = loss, .optimizer = SgdOptions{}}};
  const auto compiled = Compile(g, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->executable->proto().ipus(0).remote_buffers_size(), 1);
  EXPECT_EQ(compiled->executable->proto().ipus(1).remote_buffers_size(), 0);
}

// A transfer with streaming memory takes at most 128 MiB: what is larger lies in several rows.
class LargeVariables : public testing::Test {
 protected:
  static constexpr int64_t kRows = (32 << 20) / 128 + 1;  // 128 MiB and 512 bytes

  // An update of a table, of which two rows are looked up.
  static compiler::Compiled Compile(const CompileOptions& how, const Optimizer& optimizer) {
    Graph g;
    const Tensor table =
        g.Variable("table", {FLOAT32, {kRows, 128}}, graph::InitialValue::Uniform(1, 3));
    const Tensor rows = g.Gather(table, g.Input("row", {v1::INT32, {2}}), 0);
    const Tensor loss = g.Mean(g.Multiply(rows, rows));
    g.Output("loss", loss);
    CompileOptions options = how;
    options.allow_out_of_memory = true;
    options.programs = {{.name = "train", .loss = loss, .optimizer = optimizer}};
    const auto compiled = compiler::Compile(g, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *compiled;
  }

  // The losses of two updates, and the table.
  static std::vector<float> Train(const CompileOptions& how) {
    auto session = session::Session::Create(*session::CreateIpuModel({.compute_threads = 2}),
                                            Compile(how, SgdOptions{.learning_rate = 100}));
    EXPECT_TRUE(session.ok()) << session.status();
    std::vector<float> values;
    for (int update = 0; update < 2; ++update) {
      const auto rows = *(*session)->Stream<int32_t>("row", 0);
      rows[0] = 5;
      rows[1] = kRows - 2;
      const auto ran = (*session)->Run("train");
      EXPECT_TRUE(ran.ok()) << ran.status();
      values.push_back((*(*session)->Stream<float>("loss", 0))[0]);
    }
    const auto table = *(*session)->ReadFloats("table");
    values.insert(values.end(), table.begin(), table.end());
    return values;
  }
};

TEST_F(LargeVariables, LieInSeveralRows) {
  const auto compiled = Compile({.schedule = Schedule::kPhased}, AdamOptions());
  std::vector<std::string> remote;
  for (const auto& buffer : compiled.executable->proto().ipus(0).remote_buffers())
    remote.push_back(absl::StrCat(buffer.name(), " ", buffer.rows()));
  EXPECT_THAT(remote,
              testing::UnorderedElementsAre("table 2", "Accl1___table 2", "Accl2___table 2"));
  const auto variable = compiled.executable->FindVariable("table");
  ASSERT_TRUE(variable.ok());
  EXPECT_EQ((*variable)->type.ToString(), "float32[262145,128]");
}

TEST_F(LargeVariables, TrainAsThoseOnTheChip) {
  const std::vector<float> on_chip = Train({});
  EXPECT_LT(on_chip[1], on_chip[0]);
  EXPECT_TRUE(Train({.off_chip_weights = true}) == on_chip);
}

}  // namespace
}  // namespace vpod::compiler
