// Accumulators that hold the mean of the gradients so far.
#include <gtest/gtest.h>

#include "client/compiler/pipeline_test_util.h"

namespace vpod::compiler {
namespace {

// The definition, in float32: what was there times (k - 1) / k, and gradient k times 1 / k. Both
// uses of the variable have a mean of their own.
TEST(RunningMeanTest, FollowsItsDefinition) {
  constexpr uint32_t kMicroBatches = 5;
  for (v1::DataType type : {FLOAT32, FLOAT16}) {
    Graph g;
    const Tensor w = g.Variable("w", {type, {2}}, std::vector<float>{0, 0});
    const Tensor x = g.Cast(g.Input("x", {FLOAT32, {2}}), type);
    // Gradients: x, and 3.
    const Tensor once = g.Multiply(w, x), again = g.Multiply(w, g.Constant({type, {2}}, 3));
    CompileOptions options;
    options.programs = {{.name = "train",
                         .accumulation = kMicroBatches,
                         .loss = g.Cast(g.Sum(g.Add(once, again)), FLOAT32),
                         .optimizer = SgdOptions{.learning_rate = 1},
                         .reduction = GradientReduction::kRunningMean}};
    const auto compiled = Compile(g, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    auto session =
        session::Session::Create(*session::CreateIpuModel({.compute_threads = 2}), *compiled);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto stream = *(*session)->Stream<float>("x", 0);
    float mean[2][2] = {};
    for (uint32_t k = 0; k < kMicroBatches; ++k) {
      const auto before = static_cast<float>(k), count = before + 1;
      for (size_t i = 0; i < 2; ++i) {
        stream[2 * k + i] = 0.25f * static_cast<float>(k * k + i);  // exact in float16
        const float gradients[] = {stream[2 * k + i], 3};
        for (size_t use = 0; use < 2; ++use) {
          const float old = mean[use][i] * (before / count), added = gradients[use] * (1 / count);
          mean[use][i] = old + added;
        }
      }
    }
    ASSERT_TRUE((*session)->Run("train").ok());
    const auto weights = *(*session)->ReadFloats("w");
    for (size_t i = 0; i < 2; ++i) {
      const float expected = -(mean[0][i] + mean[1][i]);
      if (type == FLOAT32) {
        EXPECT_TRUE(weights[i] == expected || weights[i] == -(mean[1][i] + mean[0][i]))
            << weights[i] << " " << expected;
      } else {
        EXPECT_NEAR(weights[i], expected, 0.004);
      }
    }
  }
}

TEST(RunningMeanTest, PipelinesHaveThatOfOneIpu) {
  for (v1::DataType type : {FLOAT32, FLOAT16}) {
    const auto train = [&](uint32_t ipus, Schedule schedule) {
      CompileOptions options{.ipus_per_replica = ipus, .schedule = schedule};
      return Train(Layers(type, ipus, ipus), options, 9, 1, kWeights,
                   GradientReduction::kRunningMean);
    };
    const Result one = train(1, Schedule::kSharded), mean = Train(Layers(type, 1, 1), {}, 9);
    // Roundings add up in the course of the training: after one update they are small.
    for (size_t micro_batch = 0; micro_batch < 2 * 9; ++micro_batch) {
      EXPECT_NEAR(one.losses[micro_batch], mean.losses[micro_batch],
                  micro_batch < 9   ? 0
                  : type == FLOAT32 ? 1e-5
                                    : 1e-2);
    }
    for (Schedule schedule : kPipelines) {
      const Result pipeline = train(4, schedule);
      EXPECT_EQ(pipeline.losses, one.losses);
      EXPECT_EQ(pipeline.weights, one.weights);
    }
  }
}

}  // namespace
}  // namespace vpod::compiler
