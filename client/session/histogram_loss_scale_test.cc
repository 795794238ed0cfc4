// Loss scales that follow the sizes of float16 gradients, on the IPUModel.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
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
            program::v1::DataType type = FLOAT16, uint32_t replicas = 1) {
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
    const auto compiled = compiler::Compile(graph, {.ipus_per_replica = ipus,
                                                    .total_replicas = replicas,
                                                    .schedule = schedule,
                                                    .programs = {train}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    auto device =
        CreateIpuModel({.replicas = replicas, .ipus_per_replica = ipus, .compute_threads = 2});
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
  float Read(const std::string& name, uint32_t replica = 0) {
    const auto values = session_->ReadFloats(name, replica);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->front() : NAN;
  }

  // Updates with eight micro-batches each, which the replicas share out. x is 1, but for what two
  // of them have in its place. Returns the factor behind each update, then w.
  std::vector<float> Train(uint32_t replicas, HistogramLossScale histogram,
                           const std::vector<std::array<float, 2>>& updates) {
    constexpr uint32_t kMicroBatches = 8;
    const uint32_t accumulation = kMicroBatches / replicas;
    Open(1024, histogram, accumulation, FLOAT16, replicas);
    std::vector<float> results;
    for (const auto& [fourth, eighth] : updates) {
      for (uint32_t m = 0; m < kMicroBatches; ++m) {
        const auto x = session_->Stream<float>("x", m / accumulation)
                           ->subspan(size_t{m % accumulation} * 4, 4);
        std::fill(x.begin(), x.end(), m == 3 ? fourth : m == 7 ? eighth : 1);
      }
      const absl::Status status = session_->Run("train").status();
      EXPECT_TRUE(status.ok()) << status;
      results.push_back(Read(compiler::kLossScaleFactorName));
    }
    results.push_back(Read("w"));
    EXPECT_EQ(Read(compiler::kLossScaleFactorName, replicas - 1), results[updates.size() - 1]);
    EXPECT_EQ(Read("w", replicas - 1), results.back());
    return results;
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

// Two replicas with different gradients decide as one does that has the micro-batches of both. One
// of them alone would find twice the share of large elements, and the other one none.
TEST_P(HistogramLossScaleTest, ReplicasDecideTogether) {
  const std::vector<std::array<float, 2>> updates = {{1, 8}, {8, 1}, {8, 8}, {1, 8}, {1, 8}};
  constexpr float kLastW = 1 - 0.25f * (4 * 15 + 22) / 8;
  for (const auto& [histogram, expected] :
       std::vector<std::pair<HistogramLossScale, std::vector<float>>>{
           {{.upper_proportion = 0.06f}, {0.5f, 1, 0.5f, 1, 0.5f, kLastW}},
           {{.upper_proportion = 0.07f}, {2, 4, 2, 4, 8, kLastW}},
           {{.upper_proportion = 0.05f, .period = 2}, {1, 0.5f, 0.5f, 1, 1, kLastW}}}) {
    SCOPED_TRACE(histogram.upper_proportion);
    EXPECT_EQ(Train(1, histogram, updates), expected);
    EXPECT_EQ(Train(2, histogram, updates), expected);
  }
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
