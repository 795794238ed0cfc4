// Loss scales, clipping of gradients and parameter groups on the IPUModel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

// loss = w · x, so that the gradient of w is x, and 2 · v · x on another IPU, if there is one.
class GradientScaleTest : public testing::TestWithParam<uint32_t> {
 protected:
  void Open(const compiler::ProgramSpec& spec, program::v1::DataType type = FLOAT32,
            compiler::Schedule schedule = compiler::Schedule::kSharded) {
    const uint32_t ipus = GetParam();
    Graph graph;
    const Tensor x = graph.Cast(graph.Input("x", {FLOAT32, {}}), type);
    const Tensor w = graph.Variable("w", {type, {}}, {1});
    Tensor loss = graph.Multiply(w, x);
    graph.SetIpu(ipus - 1);
    const Tensor v = graph.Variable("v", {type, {}}, {1});
    loss = graph.Add(loss, graph.Multiply(graph.Constant({type, {}}, 2), graph.Multiply(v, x)));
    compiler::ProgramSpec train = spec;
    train.name = "train";
    train.loss = loss;
    absl::StatusOr<compiler::Compiled> compiled = compiler::Compile(
        graph, {.ipus_per_replica = ipus, .schedule = schedule, .programs = {train}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    auto device = CreateIpuModel({.ipus_per_replica = ipus, .compute_threads = 2});
    ASSERT_TRUE(device.ok()) << device.status();
    auto session = Session::Create(*std::move(device), *compiled);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  absl::Status Step(float x) {
    (*session_->Stream<float>("x", 0))[0] = x;
    return session_->Run("train").status();
  }
  float Read(const std::string& name) {
    const auto values = session_->ReadFloats(name);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->front() : NAN;
  }

  std::unique_ptr<Session> session_;
};
INSTANTIATE_TEST_SUITE_P(IpusPerReplica, GradientScaleTest, testing::Values(1, 2));

TEST_P(GradientScaleTest, AFixedScaleKeepsSmallGradients) {
  // 2^-30 is 0 in float16. The weights are of float16 too: the step must be large enough for them.
  const compiler::SgdOptions sgd{.learning_rate = 0x1p24f};
  Open({.optimizer = sgd, .loss_scale = 1024.0f}, FLOAT16);
  ASSERT_TRUE(Step(0x1p-24f).ok());
  EXPECT_EQ(Read("w"), 0);
  EXPECT_EQ(Read("v"), -1);
}

TEST_P(GradientScaleTest, AnOverflowIsLeftOutAndTheScaleShrinks) {
  Open({.optimizer = compiler::SgdOptions{.learning_rate = 0.25f, .momentum = 0.5f},
        .loss_scale = 0x1p127f,
        .automatic_loss_scale = compiler::AutomaticLossScale{.interval = 2}});
  // The gradients are 1 and 2 times the scale; only the second one overflows.
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(Read("w"), 1);
  EXPECT_EQ(Read("v"), 1);
  EXPECT_EQ(Read("Accl___w"), 0);
  EXPECT_EQ(Read("optimizer/step/ipu0"), 0);
  EXPECT_EQ(Read(compiler::kLossScaleName), 0x1p126f);
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(Read("w"), 0.75f);
  EXPECT_EQ(Read("v"), 0.5f);
  EXPECT_EQ(Read("Accl___w"), 1);
  EXPECT_EQ(Read("optimizer/step/ipu0"), 1);
}

TEST_P(GradientScaleTest, TheScaleGrowsAfterAnIntervalOfGoodUpdates) {
  Open({.optimizer = compiler::SgdOptions{.learning_rate = 0.25f},
        .loss_scale = 8.0f,
        .automatic_loss_scale =
            compiler::AutomaticLossScale{.growth = 4, .backoff = 0.25f, .interval = 2}});
  const struct {
    float x, scale;
  } kSteps[] = {{1, 8}, {1, 32}, {1, 32}, {INFINITY, 8}, {1, 8}, {NAN, 2}, {1, 2}, {1, 8}};
  for (const auto& [x, scale] : kSteps) {
    ASSERT_TRUE(Step(x).ok());
    EXPECT_EQ(Read(compiler::kLossScaleName), scale);
  }
  EXPECT_EQ(Read("w"), 1 - 6 * 0.25f);
}

TEST_P(GradientScaleTest, AScaleThatBecomesZeroFailsTheRun) {
  Open({.optimizer = compiler::SgdOptions{},
        .loss_scale = 0x1p-149f,
        .automatic_loss_scale = compiler::AutomaticLossScale()});
  const absl::Status status = Step(NAN);
  EXPECT_NE(std::string(status.message()).find("the loss scale became 0"), std::string::npos)
      << status;
}

// The gradients of w and v are x and 2 x, whose norm is sqrt(5) x.
TEST_P(GradientScaleTest, ClipsByTheNormOfAllGradients) {
  for (const std::optional<float> loss_scale : {std::optional<float>(), {64.0f}}) {
    Open({.optimizer = compiler::SgdOptions{.learning_rate = 1},
          .clip_norm = std::sqrt(5.0f),
          .loss_scale = loss_scale});
    ASSERT_TRUE(Step(0.25f).ok());  // a smaller norm stays
    EXPECT_EQ(Read("w"), 0.75f);
    EXPECT_EQ(Read("v"), 0.5f);
    ASSERT_TRUE(Step(4).ok());
    EXPECT_NEAR(Read("w"), 0.75f - 1, 1e-5f);
    EXPECT_NEAR(Read("v"), 0.5f - 2, 1e-5f);
    ASSERT_TRUE(Step(INFINITY).ok());
    EXPECT_EQ(Read("w"), -INFINITY);
  }
}

// The IPUs of a pipeline exchange their norms behind all micro-batches.
TEST_P(GradientScaleTest, ClipsByTheNormInAPipeline) {
  Open({.accumulation = 3,
        .optimizer = compiler::SgdOptions{.learning_rate = 1},
        .clip_norm = std::sqrt(5.0f)},
       FLOAT32, compiler::Schedule::kGrouped);
  const auto x = *session_->Stream<float>("x", 0);
  std::fill(x.begin(), x.end(), 4.0f);
  ASSERT_TRUE(session_->Run("train").ok());
  EXPECT_NEAR(Read("w"), 0, 1e-5f);
  EXPECT_NEAR(Read("v"), -1, 1e-5f);
}

TEST_P(GradientScaleTest, ClipsEachElement) {
  Open({.optimizer = compiler::SgdOptions{.learning_rate = 1},
        .clip_value = 1.5f,
        .loss_scale = 64.0f});
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(Read("w"), 0);
  EXPECT_EQ(Read("v"), -0.5f);
  ASSERT_TRUE(Step(-8).ok());
  EXPECT_EQ(Read("w"), 1.5f);
  EXPECT_EQ(Read("v"), 1);
}

TEST_P(GradientScaleTest, AnInfiniteGradientIsSkippedBeforeItIsClipped) {
  Open({.optimizer = compiler::SgdOptions{.learning_rate = 1},
        .clip_norm = 1,
        .clip_value = 1,
        .loss_scale = 64.0f,
        .automatic_loss_scale = compiler::AutomaticLossScale{}});
  ASSERT_TRUE(Step(INFINITY).ok());
  EXPECT_EQ(Read("w"), 1);
  EXPECT_EQ(Read(compiler::kLossScaleName), 32);
}

TEST_P(GradientScaleTest, GroupsHaveOptimizersOfTheirOwn) {
  Open({.optimizer = compiler::SgdOptions{.learning_rate = 1},
        .groups = {{{"v"}, compiler::SgdOptions{.learning_rate = 0.25f}}}});
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(Read("w"), 0);
  EXPECT_EQ(Read("v"), 0.5f);
  ASSERT_TRUE(session_->SetLearningRate(0.5f, 1).ok());
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(Read("w"), -1);
  EXPECT_EQ(Read("v"), -0.5f);
  EXPECT_TRUE(session_->SetHyperParameters(compiler::SgdOptions{.learning_rate = 2}, 1).ok());
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(Read("v"), -4.5f);
  EXPECT_EQ(session_->SetHyperParameters(compiler::LambOptions{}, 1).message(),
            "the program was compiled for SGD, not for LAMB");
  EXPECT_EQ(session_->SetHyperParameters(compiler::SgdOptions{}, 2).message(),
            "no program of the executable trains parameter group 2");
  // Another optimiser: the first step of Adam is as long as its learning rate.
  Open({.optimizer = compiler::SgdOptions{.learning_rate = 1},
        .groups = {{{"v"}, compiler::AdamOptions{.learning_rate = 0.5f}}}});
  ASSERT_TRUE(Step(8).ok());
  EXPECT_EQ(Read("w"), -7);
  EXPECT_NEAR(Read("v"), 0.5f, 1e-6f);
}

}  // namespace
}  // namespace vpod::session
