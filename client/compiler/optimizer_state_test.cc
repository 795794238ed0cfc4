// Accumulators and state of optimisers: their types, their first values, the number of updates.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/compiler/pipeline_test_util.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

constexpr uint32_t kMicroBatches = 5;

// w · x + 3 · w for a variable with two elements, whose gradients are x and 3.
std::unique_ptr<session::Session> OpenTwoUses(v1::DataType type, GradientReduction reduction) {
  Graph g;
  const Tensor w = g.Variable("w", {type, {2}}, std::vector<float>{0, 0});
  const Tensor x = g.Cast(g.Input("x", {FLOAT32, {2}}), type);
  const Tensor once = g.Multiply(w, x), again = g.Multiply(w, g.Constant({type, {2}}, 3));
  CompileOptions options;
  options.programs = {{.name = "train",
                       .accumulation = kMicroBatches,
                       .loss = g.Cast(g.Sum(g.Add(once, again)), FLOAT32),
                       .optimizer = SgdOptions{.learning_rate = 1},
                       .reduction = reduction,
                       .float16_accumulators = true}};
  const auto compiled = Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  return *session::Session::Create(*session::CreateIpuModel({.compute_threads = 2}), *compiled);
}

// Gradients whose last bits float16 loses.
float GradientOf(uint32_t micro_batch, size_t element) {
  return 1024.0f * static_cast<float>(micro_batch + 1) + static_cast<float>(element + 1);
}

float Rounded(float value) { return static_cast<float>(static_cast<_Float16>(value)); }

// Both uses of the variable have a sum, or a mean, of their own.
TEST(Float16AccumulatorTest, SumsAreRoundedAtEachMicroBatch) {
  for (const v1::DataType type : {FLOAT32, FLOAT16}) {
    const auto session = OpenTwoUses(type, GradientReduction::kSum);
    ASSERT_NE(session, nullptr);
    const auto stream = *session->Stream<float>("x", 0);
    float sums[2] = {}, exact[2] = {};
    for (uint32_t k = 0; k < kMicroBatches; ++k) {
      for (size_t i = 0; i < 2; ++i) {
        stream[2 * k + i] = GradientOf(k, i);
        sums[i] = Rounded(sums[i] + Rounded(GradientOf(k, i)));
        exact[i] += GradientOf(k, i);
      }
    }
    ASSERT_TRUE(session->Run("train").ok());
    const auto weights = *session->ReadFloats("w");
    for (size_t i = 0; i < 2; ++i) {
      const float expected = -(sums[i] + 3 * kMicroBatches);
      EXPECT_EQ(weights[i], type == FLOAT16 ? Rounded(expected) : expected);
      EXPECT_NE(sums[i], exact[i]);
    }
  }
}

TEST(Float16AccumulatorTest, RunningMeansAreRoundedAtEachMicroBatch) {
  for (const v1::DataType type : {FLOAT32, FLOAT16}) {
    const auto session = OpenTwoUses(type, GradientReduction::kRunningMean);
    ASSERT_NE(session, nullptr);
    const auto stream = *session->Stream<float>("x", 0);
    float means[2][2] = {}, exact[2] = {};
    for (uint32_t k = 0; k < kMicroBatches; ++k) {
      const auto before = static_cast<float>(k), count = before + 1;
      for (size_t i = 0; i < 2; ++i) {
        stream[2 * k + i] = GradientOf(k, i) + 0.5f;
        const float x = stream[2 * k + i];
        const float gradients[] = {type == FLOAT16 ? Rounded(x) : x, 3};
        exact[i] += x / kMicroBatches;
        for (size_t use = 0; use < 2; ++use) {
          const float old = means[use][i] * (before / count), added = gradients[use] * (1 / count);
          means[use][i] = Rounded(old + added);
        }
      }
    }
    ASSERT_TRUE(session->Run("train").ok());
    const auto weights = *session->ReadFloats("w");
    for (size_t i = 0; i < 2; ++i) {
      const float expected = -(means[0][i] + means[1][i]);
      EXPECT_EQ(weights[i], type == FLOAT16 ? Rounded(expected) : expected);
      EXPECT_NE(weights[i], -(exact[i] + 3));
    }
  }
}

TEST(Float16AccumulatorTest, WithoutAccumulationNothingIsRounded) {
  const auto hash = [](bool float16_accumulators) {
    const Network network = Layers(FLOAT32, 1, 1);
    CompileOptions options;
    options.programs = {{.name = "train",
                         .loss = network.loss,
                         .optimizer = SgdOptions{},
                         .float16_accumulators = float16_accumulators}};
    const auto compiled = Compile(network.graph, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.ok() ? compiled->executable->hash() : "";
  };
  EXPECT_EQ(hash(true), hash(false));
}

// 16384 elements of float16 are large enough for it.
TEST(Float16AccumulatorTest, MayLieInStreamingMemory) {
  constexpr int64_t kElements = 1 << 14;
  std::vector<float> weights[2];
  for (const bool off_chip : {false, true}) {
    Graph g;
    const Tensor w = g.Variable("w", {FLOAT32, {kElements}}, std::vector<float>(kElements, 1));
    CompileOptions options{.off_chip_accumulators = off_chip};
    options.programs = {{.name = "train",
                         .accumulation = 3,
                         .loss = g.Sum(g.Multiply(w, g.Input("x", {FLOAT32, {kElements}}))),
                         .optimizer = SgdOptions{.learning_rate = 1},
                         .reduction = GradientReduction::kRunningMean,
                         .float16_accumulators = true}};
    const auto compiled = Compile(g, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto& buffers = compiled->executable->proto().ipus(0).remote_buffers();
    EXPECT_EQ(std::any_of(buffers.begin(), buffers.end(),
                          [](const auto& buffer) { return buffer.type() == FLOAT16; }),
              off_chip);
    const auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
    const auto stream = *session->Stream<float>("x", 0);
    const std::vector<float> x = RandomValues(stream.size(), 3);
    std::copy(x.begin(), x.end(), stream.begin());
    ASSERT_TRUE(session->Run("train").ok());
    weights[off_chip] = *session->ReadFloats("w");
  }
  EXPECT_NE(weights[0], std::vector<float>(kElements, 1));
  EXPECT_EQ(weights[1], weights[0]);
}

struct Trained {
  std::vector<float> losses, weights;
  friend bool operator==(const Trained&, const Trained&) = default;
};

// Two updates of nine micro-batches with Adam, all of whose state is float16, on `ipus` IPUs.
Trained TrainHalves(CompileOptions options, uint32_t ipus, GradientReduction reduction) {
  const Network network = Layers(FLOAT32, ipus, ipus);
  options.ipus_per_replica = ipus;
  options.programs = {
      {.name = "train",
       .device_iterations = 2,
       .accumulation = 9,
       .loss = network.loss,
       .optimizer = AdamOptions{.float16_first_moment = true, .float16_second_moment = true},
       .reduction = reduction,
       .float16_accumulators = true}};
  const auto compiled = Compile(network.graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  const auto session =
      *session::Session::Create(*session::CreateIpuModel({.ipus_per_replica = ipus}), *compiled);
  const auto stream = *session->Stream<float>("x", 0);
  const std::vector<float> x = RandomValues(stream.size(), 31);
  std::copy(x.begin(), x.end(), stream.begin());
  const auto labels = *session->Stream<int32_t>("labels", 0);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % kWidth);
  EXPECT_TRUE(session->Run("train").ok());
  const auto losses = *session->Stream<float>("loss", 0);
  return {{losses.begin(), losses.end()}, *session->ReadFloats("w3")};
}

TEST(Float16StateTest, PipelinesAndStreamingMemoryChangeNoBit) {
  for (const auto reduction : {GradientReduction::kSum, GradientReduction::kRunningMean}) {
    const Trained one = TrainHalves({}, 1, reduction);
    ASSERT_FALSE(one.losses.empty());
    EXPECT_NE(one.losses.front(), one.losses.back());
    EXPECT_EQ(TrainHalves({.schedule = Schedule::kGrouped}, 4, reduction), one);
    EXPECT_EQ(TrainHalves({.off_chip_optimizer_state = true, .off_chip_accumulators = true}, 1,
                          reduction),
              one);
  }
}

// TensorFlow's RMSprop begins with mean squares of 1, wherever they lie, and only of its group.
TEST(FirstValuesTest, OfMeanSquaresAreOne) {
  for (const bool off_chip : {false, true}) {
    Graph g;
    const Tensor w = g.Variable("w", {FLOAT32, {8}}, std::vector<float>(8, 1));
    const Tensor v = g.Variable("v", {FLOAT32, {8}}, std::vector<float>(8, 1));
    CompileOptions options{.off_chip_optimizer_state = off_chip};
    options.programs = {
        {.name = "train",
         .loss = g.Sum(g.Multiply(w, v)),
         .optimizer = RmsPropOptions{},
         .groups = {{{"v"}, RmsPropOptions{.momentum = 0.5f, .tensorflow = true}}}}};
    const auto compiled = Compile(g, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
    EXPECT_EQ(*session->ReadFloats("Accl2___w"), std::vector<float>(8, 0));
    EXPECT_EQ(*session->ReadFloats("Accl2___v"), std::vector<float>(8, 1));
    EXPECT_EQ(*session->ReadFloats("Accl___v"), std::vector<float>(8, 0));
  }
}

// The constant in the place of the number of updates passes checks for finite results.
TEST(UncountedUpdateTest, IsFinite) {
  for (const Optimizer& optimizer : {Optimizer(SgdOptions{.momentum = 0.5f, .dampen_all = true}),
                                     Optimizer(AdamOptions{.bias_correction = false}),
                                     Optimizer(LambOptions{.bias_correction = false})}) {
    Graph g;
    const Tensor w = g.Variable("w", {FLOAT32, {8}}, std::vector<float>(8, 1));
    CompileOptions options;
    options.programs = {{.name = "train", .loss = g.Sum(w), .optimizer = optimizer}};
    const auto compiled = Compile(g, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_FALSE(compiled->executable->FindVariable(OptimizerStepName(0)).ok());
    const auto session =
        *session::Session::Create(*session::CreateIpuModel({}), *compiled, {.check_finite = true});
    const auto cycles = session->Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
  }
}

TEST(Float16StateTest, VariablesHaveTheirTypes) {
  Graph g;
  const Tensor w = g.Variable("w", {FLOAT32, {8}}, std::vector<float>(8, 1));
  CompileOptions options;
  options.programs = {{.name = "train",
                       .loss = g.Sum(w),
                       .optimizer = AdamOptions{.amsgrad = true, .float16_second_moment = true}}};
  const auto compiled = Compile(g, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (const auto& [name, type] : {std::pair("w", FLOAT32),
                                   {"Accl1___w", FLOAT32},
                                   {"Accl2___w", FLOAT16},
                                   {"AcclMax___w", FLOAT16}}) {
    EXPECT_EQ((*compiled->executable->FindVariable(name))->type.type, type) << name;
  }
}

// Weights of float32 need no rounding of their own: what is float16 is rounded at random all the
// same, each instruction with a number of its own.
TEST(Float16StateTest, IsRoundedAtRandom) {
  for (const auto reduction : {GradientReduction::kSum, GradientReduction::kRunningMean}) {
    Graph g;
    const Tensor w = g.Variable("w", {FLOAT32, {8}}, std::vector<float>(8, 1));
    const Tensor v = g.Variable("v", {FLOAT32, {8}}, std::vector<float>(8, 1));
    CompileOptions options{.rounding = Rounding::kStochastic};
    options.programs = {{.name = "train",
                         .accumulation = 2,
                         .loss = g.Sum(g.Multiply(g.Multiply(w, v), g.Input("x", {FLOAT32, {8}}))),
                         .optimizer = SgdOptions{.momentum = 0.5f, .float16_velocity = true},
                         .reduction = reduction,
                         .float16_accumulators = true}};
    const auto compiled = Compile(g, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const v1::Ipu& ipu = compiled->executable->proto().ipus(0);
    std::set<uint32_t> numbers;
    int halves = 0;
    program::ForEachInstruction(
        ipu, compiled->executable->EntryOf(*compiled->executable->FindProgram("train"), 0),
        [&](const v1::Instruction& instruction, uint64_t) {
          if (!program::FindOp(instruction.attributes_case())->rounds) return;
          for (uint32_t output : instruction.outputs()) {
            if (ipu.tensors(static_cast<int>(output)).type() != FLOAT16) continue;
            ++halves;
            EXPECT_TRUE(instruction.has_rounding()) << instruction.ShortDebugString();
            EXPECT_TRUE(numbers.insert(instruction.rounding().number()).second);
          }
        });
    // Two velocities, and for each variable a mean, or a gradient and a sum.
    EXPECT_EQ(halves, reduction == GradientReduction::kSum ? 6 : 4);
  }
}

}  // namespace
}  // namespace vpod::compiler
