// Float16 training on the IPUModel.
#include <gtest/gtest.h>

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
    const auto compiled =
        compiler::Compile(graph, {.total_replicas = replicas,
                                  .programs = {{.name = "train",
                                                .accumulation = kContributions / replicas,
                                                .loss = loss,
                                                .sgd = {.learning_rate = 1},
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

}  // namespace
}  // namespace vpod::session
