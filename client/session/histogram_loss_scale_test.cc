// Loss scales that follow the sizes of float16 gradients, on the IPUModel.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using compiler::HistogramLossScale;
using compiler::Schedule;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

struct Layout {
  uint32_t ipus;
  Schedule schedule;
};

// loss = sum(w · x) of four elements: the gradients of the product are the loss scale, those of w
// the loss scale times x. An element is counted if it is above 8188.
class HistogramLossScaleTest : public testing::TestWithParam<Layout> {
 protected:
  void Open(float loss_scale, HistogramLossScale histogram, uint32_t accumulation = 4,
            program::v1::DataType type = FLOAT16) {
    const auto [ipus, schedule] = GetParam();
    Graph graph;
    const Tensor x = graph.Cast(graph.Input("x", {FLOAT32, {4}}), type);
    const Tensor w = graph.Variable("w", {type, {4}}, std::vector<float>(4, 1));
    const Tensor product = graph.Multiply(w, x);
    graph.SetIpu(ipus - 1);
    const compiler::ProgramSpec train{.name = "train",
                                      .accumulation = accumulation,
                                      .loss = graph.Sum(graph.Cast(product, FLOAT32)),
                                      .optimizer = compiler::SgdOptions{.learning_rate = 0.25f},
                                      .loss_scale = loss_scale,
                                      .histogram_loss_scale = histogram};
    const auto compiled = compiler::Compile(
        graph, {.ipus_per_replica = ipus, .schedule = schedule, .programs = {train}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    auto device = CreateIpuModel({.ipus_per_replica = ipus, .compute_threads = 2});
    ASSERT_TRUE(device.ok()) << device.status();
    auto session = Session::Create(*std::move(device), *compiled);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    micro_batches_ = accumulation;
  }
  // One update; x is 1 but in the last micro-batch. Returns the factor behind it.
  float Step(float last = 1) {
    const auto x = *session_->Stream<float>("x", 0);
    for (size_t i = 0; i < x.size(); ++i) x[i] = i / 4 == micro_batches_ - 1 ? last : 1;
    const absl::Status status = session_->Run("train").status();
    EXPECT_TRUE(status.ok()) << status;
    return Read(compiler::kLossScaleFactorName);
  }
  float Read(const std::string& name) {
    const auto values = session_->ReadFloats(name);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->front() : NAN;
  }

  std::unique_ptr<Session> session_;
  uint32_t micro_batches_ = 1;
};
INSTANTIATE_TEST_SUITE_P(Layouts, HistogramLossScaleTest,
                         testing::Values(Layout{1, Schedule::kSharded},
                                         Layout{2, Schedule::kSharded},
                                         Layout{2, Schedule::kGrouped}));

TEST_P(HistogramLossScaleTest, DoublesUntilElementsAreLarge) {
  Open(1024, {});
  for (float factor : {2, 4, 8, 4, 8, 4}) EXPECT_EQ(Step(), factor);
  // No update is left out, and the factor is not in the step.
  EXPECT_EQ(Read("w"), 1 - 6 * 0.25f);
  EXPECT_EQ(Read(compiler::kLossScaleName), 1024) << "stays";
}

// Four elements of 32 are above the edge in one update.
TEST_P(HistogramLossScaleTest, ComparesTheShareOfLargeElements) {
  Open(1024, {.upper_proportion = 0.12f});
  EXPECT_EQ(Step(16), 0.5f);
  EXPECT_EQ(Step(), 1) << "each update counts from 0";
  Open(1024, {.upper_proportion = 0.13f});
  EXPECT_EQ(Step(16), 2);
}

TEST_P(HistogramLossScaleTest, TakesAnotherEdge) {
  Open(1024, {.bin_edge = 0.01f});
  EXPECT_EQ(Step(), 0.5f) << "655 is the edge";
  EXPECT_EQ(Step(), 1);
}

TEST_P(HistogramLossScaleTest, ChangesOnceAPeriod) {
  Open(1024, {.upper_proportion = 0.05f, .period = 2});
  for (float factor : {1, 2, 2}) EXPECT_EQ(Step(), factor);
  EXPECT_EQ(Step(16), 1) << "4 of 64 elements";
  EXPECT_EQ(Step(16), 1);
  EXPECT_EQ(Step(), 0.5f) << "those of the first update count";
}

TEST_P(HistogramLossScaleTest, StaysInItsRange) {
  Open(0x1p23f, {.upper_proportion = 0.9f});
  EXPECT_EQ(Step(0), 2);
  EXPECT_EQ(Step(0), 2);
  Open(0x1p-23f, {});
  EXPECT_EQ(Step(INFINITY), 0.5f);
  EXPECT_EQ(Step(INFINITY), 0.5f);
}

TEST_P(HistogramLossScaleTest, GradientsOfFloat32AreNotCounted) {
  Open(1024, {}, 4, FLOAT32);
  EXPECT_EQ(Step(), 1);
  EXPECT_EQ(Read("w"), 0.75f);
}

}  // namespace
}  // namespace vpod::session
