// Float16 training on the IPUModel.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;

// A weight of a loss w · x, whose gradient is x, after an update with the learning rate 1.
class MeanOfGradientsTest : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kContributions = 256;

  static float UpdatedWeight(_Float16 x, compiler::GradientReduction reduction) {
    const uint32_t replicas = GetParam();
    Graph graph;
    const Tensor w = graph.Variable("w", {FLOAT16, {}}, {0});
    const Tensor loss = graph.Multiply(w, graph.Input("x", {FLOAT16, {}}));
    const auto compiled = compiler::Compile(
        graph, {.total_replicas = replicas,
                .programs = {{.name = "train",
                              .accumulation = kContributions / replicas,
                              .loss = loss,
                              .optimizer = compiler::SgdOptions{.learning_rate = 1},
                              .reduction = reduction}}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    const auto session = *Session::Create(*CreateIpuModel({.replicas = replicas}), *compiled);
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      const auto stream = *session->Stream<_Float16>("x", replica);
      std::fill(stream.begin(), stream.end(), x);
    }
    EXPECT_TRUE(session->Run("train").ok());
    return session->ReadFloats("w", replicas - 1)->front();
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, MeanOfGradientsTest, testing::Values(1, 16, 256));

// The sum, 76,800, is beyond the largest float16.
TEST_P(MeanOfGradientsTest, HasNoOverflow) {
  EXPECT_EQ(UpdatedWeight(300, compiler::GradientReduction::kMean), -300);
}

// Added up in float16, they would stop to count at 2048.
TEST_P(MeanOfGradientsTest, LosesNoContribution) {
  EXPECT_EQ(UpdatedWeight(_Float16(10.0f + 1.0f / 128), compiler::GradientReduction::kMean),
            -(10.0f + 1.0f / 128));
  EXPECT_EQ(UpdatedWeight(129, compiler::GradientReduction::kSum), -33024);
}

// The gradients by different uses of a weight, one of them in another shape: 2048 + 1 is no
// float16.
TEST(TiedWeightTest, UsesAreAddedBeforeTheyAreRounded) {
  for (const uint32_t accumulation : {1, 2}) {
    Graph graph;
    const Tensor w = graph.Variable("w", {FLOAT16, {2}}, {0, 0});
    const auto used = [&](Tensor weights, double factor) {
      const Tensor x = graph.Constant({FLOAT16, {}}, factor);
      return graph.Sum(graph.Cast(graph.Multiply(weights, x), program::v1::FLOAT32));
    };
    const Tensor loss = graph.Add(used(w, 2048), used(graph.Reshape(w, {2, 1}), 1));
    const auto compiled = compiler::Compile(
        graph,
        {.programs = {{.name = "train",
                       .accumulation = accumulation,
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = 0, .momentum = 0.5f}}}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto session = *Session::Create(*CreateIpuModel({}), *compiled);
    ASSERT_TRUE(session->Run("train").ok());
    EXPECT_EQ(*session->ReadFloats("Accl___w"), (std::vector<float>{2049, 2049}));
  }
}

// --- Stochastic rounding ---

constexpr int64_t kElements = 1000;

// Adds x to the weights, which are 1 at first, in each update, and gives w + x.
class StochasticRoundingTest : public testing::Test {
 protected:
  static std::unique_ptr<Session> Open(compiler::Rounding rounding, uint32_t replicas = 1) {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT16, {kElements}});
    const Tensor w = graph.Variable("w", {FLOAT16, {kElements}}, std::vector<float>(kElements, 1));
    graph.Output("sum", graph.Add(w, x));
    const Tensor loss = graph.Sum(
        graph.Multiply(graph.Cast(w, program::v1::FLOAT32), graph.Cast(x, program::v1::FLOAT32)));
    const auto compiled = compiler::Compile(
        graph,
        {.total_replicas = replicas,
         .rounding = rounding,
         .programs = {{.name = "train",
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = 1, .maximize = true}}}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *Session::Create(*CreateIpuModel({.replicas = replicas}), *compiled);
  }

  // A run in which all x are this.
  static void Run(Session& session, float x) {
    for (uint32_t replica = 0; replica < session.device().local_replicas(); ++replica) {
      const auto stream = *session.Stream<_Float16>("x", replica);
      std::fill(stream.begin(), stream.end(), static_cast<_Float16>(x));
    }
    EXPECT_TRUE(session.Run("train").ok());
  }
  static std::vector<float> SumOf(Session& session, uint32_t replica = 0) {
    const auto sums = *session.Stream<_Float16>("sum", replica);
    return {sums.begin(), sums.end()};
  }
};

// A 16th of the distance from 1 to the next float16.
constexpr float kLittle = 0x1p-14f;

TEST_F(StochasticRoundingTest, WeightsMoveByStepsThatRoundingToNearestLoses) {
  constexpr int kUpdates = 160;
  for (const bool stochastic : {false, true}) {
    const auto session =
        Open(stochastic ? compiler::Rounding::kStochastic : compiler::Rounding::kNearest);
    for (int update = 0; update < kUpdates; ++update) Run(*session, kLittle);
    double mean = 0;
    const std::vector<float> weights = *session->ReadFloats("w");
    for (float weight : weights) mean += weight / kElements;
    // A step of 2^-10 has a deviation of 2^-10 · sqrt(15) / 16 in each update.
    const double deviation = 0x1p-12 * std::sqrt(double{kUpdates} / kElements);
    EXPECT_NEAR(mean, stochastic ? 1 + kUpdates * kLittle : 1, 5 * deviation);
  }
}

TEST_F(StochasticRoundingTest, ReplicasHaveEqualWeightsAndOtherActivationsUnlessSeedsAreEqual) {
  for (const auto rounding :
       {compiler::Rounding::kStochastic, compiler::Rounding::kStochasticEqualSeeds}) {
    const auto session = Open(rounding, 2);
    for (int update = 0; update < 3; ++update) {
      const auto weights = *session->ReadFloats("w", 0);
      Run(*session, kLittle);
      EXPECT_NE(*session->ReadFloats("w", 0), weights);
      EXPECT_EQ(*session->ReadFloats("w", 0), *session->ReadFloats("w", 1));
      EXPECT_EQ(SumOf(*session, 0) == SumOf(*session, 1),
                rounding == compiler::Rounding::kStochasticEqualSeeds);
    }
  }
}

TEST_F(StochasticRoundingTest, FollowsFromTheSeedAndTheMicroBatch) {
  std::set<std::vector<float>> sums;
  std::vector<float> first;
  for (float seed : {0, 0, 1}) {
    const auto session = Open(compiler::Rounding::kStochasticEqualSeeds);
    ASSERT_TRUE(session->WriteFloats("random/seed", {seed, 5}).ok());
    Run(*session, kLittle);
    if (first.empty()) first = SumOf(*session);
    EXPECT_EQ(SumOf(*session) == first, seed == 0);
    sums.insert(SumOf(*session));
    ASSERT_TRUE(session->WriteFloats("w", std::vector<float>(kElements, 1)).ok());
    Run(*session, kLittle);
    sums.insert(SumOf(*session));
  }
  EXPECT_EQ(sums.size(), 4u);
}

}  // namespace
}  // namespace vpod::session
