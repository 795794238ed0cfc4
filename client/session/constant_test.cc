// Constants with elements of their own, on the IPUModel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::session {
namespace {

using compiler::SgdOptions;
using graph::Graph;
using graph::Tensor;
using graph::TensorType;
using program::v1::FLOAT32;
using testing::ElementsAre;

Tensor Constant(Graph& graph, graph::Dims dims, const std::vector<float>& values) {
  return graph.Constant(
      {FLOAT32, std::move(dims)},
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

std::unique_ptr<Session> Open(const Graph& graph, const compiler::CompileOptions& options) {
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto session =
      Session::Create(*CreateIpuModel({.ipus_per_replica = options.ipus_per_replica}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

// Runs a program once, without inputs.
std::unique_ptr<Session> OpenAndRun(const Graph& graph, uint32_t ipus = 1) {
  auto session = Open(graph, {.ipus_per_replica = ipus, .programs = {{.name = "run"}}});
  if (session == nullptr) return nullptr;
  const auto cycles = session->Run("run");
  EXPECT_TRUE(cycles.ok()) << cycles.status();
  return session;
}

std::vector<float> Output(Session& session, const char* name) {
  const auto stream = *session.Stream<float>(name, 0);
  return {stream.begin(), stream.end()};
}

TEST(ConstantTest, IsReadAsItIsAndThroughViews) {
  Graph graph;
  const Tensor c = Constant(graph, {2, 3}, {1, 2, 3, 4, 5, 6});
  graph.Output("itself", c);
  graph.Output("transposed", graph.Transpose(c, {1, 0}));
  graph.Output("part", graph.Slice(c, {0, 1}, {2, 2}));
  graph.Output("reshaped", graph.Reshape(c, {6}));
  graph.Output("doubled", graph.Add(c, c));
  const auto session = OpenAndRun(graph);
  ASSERT_NE(session, nullptr);
  EXPECT_THAT(Output(*session, "itself"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Output(*session, "transposed"), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(Output(*session, "part"), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(Output(*session, "reshaped"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Output(*session, "doubled"), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST(ConstantTest, IsNoState) {
  Graph graph;
  graph.Output("c", Constant(graph, {2}, {1, 2}));
  const auto compiled = compiler::Compile(graph, {.programs = {{.name = "run"}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(compiled->executable->host_tensors().empty());
  EXPECT_TRUE(compiled->initial_values.empty());
}

// A convolution wants images with the channels innermost, and is the same with a buffer.
TEST(ConstantTest, ImagesAndWeightsOfAConvolution) {
  const TensorType images{FLOAT32, {2, 3, 6, 5}}, weights{FLOAT32, {4, 3, 3, 3}};
  const std::vector<float> x = RandomValues(2 * 3 * 6 * 5, 1), w = RandomValues(4 * 3 * 3 * 3, 2);
  std::vector<std::vector<float>> results;
  for (const bool are_constants : {true, false}) {
    Graph graph;
    const Tensor image =
        are_constants ? Constant(graph, images.dims, x) : graph.Buffer("x", images, x);
    const Tensor kernel =
        are_constants ? Constant(graph, weights.dims, w) : graph.Buffer("w", weights, w);
    const Tensor offset = Constant(graph, {1, 4, 1, 1}, {1, -1, 2, -2});
    const Tensor y = graph.Convolution(image, kernel, Graph::Sliding(2, 3, 1, 1));
    graph.Output("y", graph.Relu(graph.Add(y, offset)));
    const auto session = OpenAndRun(graph);
    ASSERT_NE(session, nullptr);
    results.push_back(Output(*session, "y"));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(ConstantTest, IsOnEachIpuThatReadsIt) {
  Graph graph;
  const Tensor c = Constant(graph, {3}, {1, 2, 3});
  const Tensor here = graph.Add(c, c);
  graph.SetIpu(1);
  graph.Output("there", graph.Multiply(here, c));
  const auto session = OpenAndRun(graph, /*ipus=*/2);
  ASSERT_NE(session, nullptr);
  EXPECT_THAT(Output(*session, "there"), ElementsAre(2, 8, 18));
}

TEST(ConstantTest, TrainingReadsIt) {
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {3}}, {0, 0, 0});
  const Tensor loss = graph.Sum(graph.Multiply(w, Constant(graph, {3}, {1, 2, 4})));
  graph.Output("loss", loss);
  const auto session = Open(graph, {.programs = {{.name = "train",
                                                  .device_iterations = 2,
                                                  .accumulation = 2,
                                                  .loss = loss,
                                                  .optimizer = SgdOptions{.learning_rate = 0.5}},
                                                 {.name = "infer"}}});
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->Run("train").ok());
  EXPECT_THAT(*session->ReadFloats("w"), ElementsAre(-1, -2, -4));
  ASSERT_TRUE(session->Run("infer").ok());
  EXPECT_EQ(Output(*session, "loss")[0], -21);
}

// The same executable with other elements is another one.
TEST(ConstantTest, IsPartOfTheExecutable) {
  const auto hash = [](float last) {
    Graph graph;
    graph.Output("c", Constant(graph, {2}, {1, last}));
    const auto compiled = compiler::Compile(graph, {.programs = {{.name = "run"}}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled->executable->hash();
  };
  EXPECT_EQ(hash(2), hash(2));
  EXPECT_NE(hash(2), hash(3));
}

}  // namespace
}  // namespace vpod::session
