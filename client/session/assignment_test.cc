// Assignments to buffers and variables, in programs that train and in others, on the IPUModel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::session {
namespace {

using compiler::CompileOptions;
using compiler::ProgramSpec;
using compiler::SgdOptions;
using graph::Assigned;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::ElementsAre;

std::unique_ptr<Session> Open(const Graph& graph, const CompileOptions& options) {
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto device = CreateIpuModel({.replicas = options.total_replicas,
                                .ipus_per_replica = options.ipus_per_replica,
                                .compute_threads = 1});
  EXPECT_TRUE(device.ok()) << device.status();
  auto session = Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

void RunOnce(Session& session, const std::string& program) {
  const auto cycles = session.Run(program);
  ASSERT_TRUE(cycles.ok()) << cycles.status();
}

Tensor Times(Graph& graph, Tensor value, double factor) {
  return graph.Multiply(value, graph.Constant({graph.TypeOf(value).type, {}}, factor));
}

// As a running mean and a counter of batches in one model.
TEST(AssignmentTest, ProgramsThatDoNotTrainMakeThoseOfAllPrograms) {
  Graph graph;
  const Tensor count = graph.Buffer("count", {INT32, {}}, {0});
  const Tensor mean = graph.Buffer("mean", {FLOAT32, {}}, {1});
  const Tensor w = graph.Variable("w", {FLOAT32, {}}, {3});
  graph.Assign(count, graph.Add(count, graph.Constant({INT32, {}}, 1)), Assigned::kAlways);
  graph.Assign(mean, Times(graph, mean, 2));
  graph.Output("count", count);
  const auto session =
      Open(graph, {.programs = {{.name = "infer", .device_iterations = 3},
                                {.name = "train", .loss = w, .optimizer = SgdOptions{}}}});
  ASSERT_NE(session, nullptr);
  RunOnce(*session, "infer");
  EXPECT_THAT(*session->Stream<int32_t>("count", 0), ElementsAre(0, 1, 2));
  RunOnce(*session, "infer");
  EXPECT_THAT(*session->Stream<int32_t>("count", 0), ElementsAre(3, 4, 5));
  EXPECT_THAT(*session->ReadFloats("mean"), ElementsAre(1));
  RunOnce(*session, "train");
  EXPECT_THAT(*session->ReadFloats("mean"), ElementsAre(2));
  EXPECT_THAT(*session->ReadFloats("count"), ElementsAre(7));
}

TEST(AssignmentTest, AVariableChangesWithoutTraining) {
  Graph graph;
  const Tensor a = graph.Variable("a", {FLOAT32, {2, 2}}, {1, 2, 3, 4});
  const Tensor b = graph.Variable("b", {FLOAT32, {2, 2}}, {5, 6, 7, 8});
  // Each is the other's value before, one of them by way of a view.
  graph.Assign(a, graph.Transpose(b, {1, 0}), Assigned::kAlways);
  graph.Assign(b, a, Assigned::kAlways);
  graph.Output("before", a);
  const auto session = Open(graph, {.programs = {{.name = "infer"}}});
  ASSERT_NE(session, nullptr);
  RunOnce(*session, "infer");
  EXPECT_THAT(*session->Stream<float>("before", 0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*session->ReadFloats("a"), ElementsAre(5, 7, 6, 8));
  EXPECT_THAT(*session->ReadFloats("b"), ElementsAre(1, 2, 3, 4));
}

// The layout that convolutions ask for is not that of assigned values.
TEST(AssignmentTest, TheWeightsOfAConvolution) {
  const std::vector<float> initial = RandomValues(8 * 4 * 3 * 3, 1);
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {8, 4, 3, 3}}, initial);
  const Tensor x = graph.Input("x", {FLOAT32, {1, 4, 5, 5}});
  const Tensor y = graph.Convolution(x, w, Graph::Sliding(2, 3));
  graph.Assign(w, Times(graph, w, 0.5));
  const Tensor loss = graph.Sum(y);
  graph.Output("loss", loss);
  const auto session = Open(
      graph,
      {.programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{.learning_rate = 1}}}});
  ASSERT_NE(session, nullptr);
  RunOnce(*session, "train");  // of an image of zeros, whose gradient is zero
  std::vector<float> half = initial;
  for (float& value : half) value /= 2;
  EXPECT_EQ(*session->ReadFloats("w"), half);
}

// Weights are clamped outside autograd and read afterwards, as `w.data.clamp_(0, 1)` in a model.
TEST(AssignmentTest, AWriteThatAutogradDoesNotSee) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {3}});
  const Tensor w = graph.Variable("w", {FLOAT32, {3}}, {-1, 0.5, 2});
  const Tensor clamped =
      graph.Binary(program::v1::MINIMUM, graph.Relu(w), graph.Constant({FLOAT32, {}}, 1));
  graph.Assign(w, clamped);
  const Tensor loss = graph.Sum(graph.Multiply(graph.PassBy(clamped, w), x));
  graph.Output("loss", loss);
  const auto session = Open(
      graph, {.programs = {
                  {.name = "train", .loss = loss, .optimizer = SgdOptions{.learning_rate = 0.5}}}});
  ASSERT_NE(session, nullptr);
  const auto stream = *session->Stream<float>("x", 0);
  for (size_t i = 0; i < 3; ++i) stream[i] = static_cast<float>(i + 1);
  RunOnce(*session, "train");
  EXPECT_THAT(*session->Stream<float>("loss", 0), ElementsAre(0.5 * 2 + 3));
  EXPECT_THAT(*session->ReadFloats("w"), ElementsAre(0 - 0.5, 0.5 - 1, 1 - 1.5));
}

// How a program trains, and whether the assigned value is made on another IPU than the variable's.
struct Training {
  std::string name;
  CompileOptions options;
  ProgramSpec spec;
  uint32_t ipu = 0;
};

class AssignmentTrainingTest : public testing::TestWithParam<Training> {};

// Each micro-batch halves the weights, which are large enough for streaming memory; its gradient
// is x whatever the weights are.
TEST_P(AssignmentTrainingTest, TheUpdateStartsFromTheAssignedValue) {
  const graph::TensorType type{FLOAT32, {64, 128}};
  std::vector<float> initial(static_cast<size_t>(type.elements()));
  std::vector<float> images(initial.size());
  for (size_t i = 0; i < initial.size(); ++i) {
    initial[i] = static_cast<float>(i % 37) - 20;
    images[i] = static_cast<float>(i % 5) - 1;
  }
  Graph graph;
  const Tensor x = graph.Input("x", type);
  const Tensor w = graph.Variable("w", type, initial);
  const Tensor loss = graph.Sum(graph.Multiply(x, graph.Unary(program::v1::NEGATE, w)));
  graph.SetIpu(GetParam().ipu);
  graph.Assign(w, Times(graph, w, 0.5));
  graph.Output("loss", loss);
  CompileOptions options = GetParam().options;
  ProgramSpec spec = GetParam().spec;
  spec.name = "train";
  spec.loss = loss;
  spec.optimizer = SgdOptions{.learning_rate = 0.25f};
  options.programs = {spec};
  const auto session = Open(graph, options);
  ASSERT_NE(session, nullptr);
  for (uint32_t replica = 0; replica < options.total_replicas; ++replica) {
    const auto stream = *session->Stream<float>("x", replica);
    for (size_t i = 0; i < stream.size(); ++i) stream[i] = images[i % images.size()];
  }
  RunOnce(*session, "train");
  std::vector<float> expected = initial;
  for (size_t i = 0; i < initial.size(); ++i) {
    for (uint32_t micro_batch = 0; micro_batch < spec.accumulation; ++micro_batch)
      expected[i] *= 0.5f;
    expected[i] += 0.25f * images[i];
  }
  for (uint32_t replica = 0; replica < options.total_replicas; ++replica)
    EXPECT_EQ(*session->ReadFloats("w", replica), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, AssignmentTrainingTest,
    testing::Values(Training{.name = "OneMicroBatch"},
                    Training{.name = "Accumulation", .spec = {.accumulation = 3}},
                    Training{.name = "RunningMean",
                             .spec = {.accumulation = 2,
                                      .reduction = compiler::GradientReduction::kRunningMean}},
                    Training{.name = "Replicas", .options = {.total_replicas = 2}},
                    Training{.name = "TensorShards",
                             .options = {.total_replicas = 2, .tensor_shards = 2}},
                    Training{.name = "Recomputation",
                             .options = {.recomputation = compiler::Recomputation::kAll}},
                    Training{.name = "OffChipWeights", .options = {.off_chip_weights = true}},
                    Training{.name = "Phased",
                             .options = {.schedule = compiler::Schedule::kPhased},
                             .spec = {.accumulation = 2}},
                    Training{.name = "Unfused", .options = {.fusion = false}},
                    Training{.name = "AnotherIpu", .options = {.ipus_per_replica = 2}, .ipu = 1},
                    Training{.name = "Clipped", .spec = {.clip_value = 1e9f}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vpod::session
