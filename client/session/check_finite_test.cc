// LoadOptions::check_finite: a run fails at the first operation that gives NaN or infinity.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Opened {
  std::unique_ptr<Session> session;
  absl::Status Run() { return session->Run("main").status(); }
};

// With the input "x", float32[4], of one replica.
Opened Open(const Graph& graph, std::optional<Tensor> loss, bool check, bool fusion = false,
            uint32_t accumulation = 1) {
  compiler::CompileOptions options;
  options.fusion = fusion;
  options.programs = {{.name = "main", .accumulation = accumulation}};
  if (loss) {
    options.programs[0].loss = loss;
    options.programs[0].optimizer = compiler::SgdOptions{.learning_rate = 0.1f};
  }
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  auto session =
      Session::Create(*CreateIpuModel({.compute_threads = 2}), *compiled, {.check_finite = check});
  EXPECT_TRUE(session.ok()) << session.status();
  return {*std::move(session)};
}

void Feed(Opened& opened, std::vector<float> x) {
  const auto stream = *opened.session->Stream<float>("x", 0);
  std::copy(x.begin(), x.end(), stream.begin());
}

// log(x) in "layer1", tanh of it in "layer2".
Graph Example() {
  Graph graph;
  Tensor x = graph.Input("x", {FLOAT32, {4}});
  {
    const Graph::Scope scope(graph, "layer1");
    x = graph.Unary(program::v1::LOGARITHM, x);
  }
  const Graph::Scope scope(graph, "layer2");
  graph.Output("y", graph.Unary(program::v1::TANH, x));
  return graph;
}

TEST(CheckFiniteTest, TheFirstOperationIsNamed) {
  Opened opened = Open(Example(), {}, /*check=*/true);
  Feed(opened, {1, 2, 0, 3});
  const absl::Status status = opened.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "logarithm 'layer1': gives -inf");
  Feed(opened, {1, 2, -1, 3});
  EXPECT_EQ(opened.Run().message(), "logarithm 'layer1': gives nan");
  // Data from the host are checked, too.
  Feed(opened, {1, kInfinity, 2, 3});
  EXPECT_EQ(opened.Run().message(), "stream_in 'x': gives inf");
  Feed(opened, {1, 2, 3, 4});
  EXPECT_TRUE(opened.Run().ok());
}

// Without the check a normalisation runs with the chunks of the convolution before it.
TEST(CheckFiniteTest, ChangesNoBitOfANormalizedConvolution) {
  std::vector<float> results[2];
  for (const bool check : {false, true}) {
    Graph graph;
    Tensor x = graph.Input("x", {FLOAT32, {4}});
    x = graph.Add(graph.Reshape(x, {4, 1, 1, 1}), graph.Constant({FLOAT32, {4, 8, 20, 20}}, 0.5f));
    const std::vector<float> weights(8 * 8 * 3 * 3, 0.01f);
    const Tensor w = graph.Variable("w", {FLOAT32, {8, 8, 3, 3}}, weights);
    const Tensor third = graph.Constant({FLOAT32, {8}}, 0.3f);
    for (int layer = 0; layer < 3; ++layer) {
      x = graph.Convolution(x, w, Graph::Sliding(2, 3, 1, 1));
      x = graph.BatchNormInference(x, third, third, third, third, 0.1f);
    }
    graph.Output("y", x);
    Opened opened = Open(graph, {}, check);
    Feed(opened, {1, -2, 3, 4});
    ASSERT_TRUE(opened.Run().ok());
    ASSERT_TRUE(opened.Run().ok());  // with packed weights
    const auto y = *opened.session->Stream<float>("y", 0);
    results[check].assign(y.begin(), y.end());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(CheckFiniteTest, IsOffByDefaultAndTakesNoVirtualTime) {
  Opened checked = Open(Example(), {}, /*check=*/true), opened = Open(Example(), {}, false);
  for (Opened* each : {&checked, &opened}) Feed(*each, {1, 2, 3, 4});
  EXPECT_EQ(*checked.session->Run("main"), *opened.session->Run("main"));
  Feed(opened, {1, 0, -1, kInfinity});
  EXPECT_TRUE(opened.Run().ok());
}

TEST(CheckFiniteTest, TheEnvironmentTurnsItOn) {
  ASSERT_EQ(setenv("POPLAR_ENGINE_OPTIONS", R"({"debug.checkFinite": "true"})", 1), 0);
  Opened opened = Open(Example(), {}, /*check=*/false);
  unsetenv("POPLAR_ENGINE_OPTIONS");
  Feed(opened, {1, 2, 0, 3});
  EXPECT_EQ(opened.Run().message(), "logarithm 'layer1': gives -inf");
}

TEST(CheckFiniteTest, FusedOperationsAreLookedAtAsOne) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {4}});
  const Graph::Scope scope(graph, "layer");
  graph.Output("y", graph.Unary(program::v1::SQUARE, graph.Unary(program::v1::LOGARITHM, x)));
  Opened opened = Open(graph, {}, /*check=*/true, /*fusion=*/true);
  Feed(opened, {1, 2, 0, 3});
  EXPECT_EQ(opened.Run().message(), "square 'layer' (map): gives inf");
}

TEST(CheckFiniteTest, HalfPrecisionOverflows) {
  Graph graph;
  Tensor x = graph.Cast(graph.Input("x", {FLOAT32, {4}}), FLOAT16);
  const Graph::Scope scope(graph, "layer");
  graph.Output("y", graph.Unary(program::v1::SQUARE, x));
  Opened opened = Open(graph, {}, /*check=*/true);
  Feed(opened, {1, 255, 255, 3});
  EXPECT_TRUE(opened.Run().ok());
  Feed(opened, {1, 255, 256, 3});
  EXPECT_EQ(opened.Run().message(), "square 'layer': gives inf");
}

// A view of every other element: those between are nobody's matter.
TEST(CheckFiniteTest, LooksAtTheElementsOfViewsOnly) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {4}});
  const Graph::Scope scope(graph, "layer");
  graph.Output("y", graph.Unary(program::v1::LOGARITHM, graph.Slice(x, {0}, {2}, {2})));
  Opened opened = Open(graph, {}, /*check=*/true);
  Feed(opened, {1, 0, 2, 0});
  EXPECT_TRUE(opened.Run().ok());
  Feed(opened, {1, 0, 0, 1});
  EXPECT_EQ(opened.Run().message(), "logarithm 'layer': gives -inf");
}

// sqrt at 0 is fine, its slope is not.
TEST(CheckFiniteTest, GradientsAndUpdatesAreNamed) {
  for (uint32_t accumulation : {1u, 2u}) {
    Graph graph;
    const Tensor w = graph.Variable("w", {FLOAT32, {4}}, {1, 1, 1, 1});
    Tensor x = graph.Multiply(graph.Input("x", {FLOAT32, {4}}), w);
    {
      const Graph::Scope scope(graph, "layer");
      x = graph.Unary(program::v1::SQUARE_ROOT, x);
    }
    Opened opened = Open(graph, graph.Sum(x), /*check=*/true, /*fusion=*/false, accumulation);
    Feed(opened, std::vector<float>(4 * accumulation, 1));
    EXPECT_TRUE(opened.Run().ok());
    Feed(opened, std::vector<float>(4 * accumulation, 100));
    ASSERT_TRUE(opened.session->SetLearningRate(3e38f).ok());
    EXPECT_EQ(opened.Run().message(), "sgd 'w': gives -inf");
    ASSERT_TRUE(opened.session->WriteFloats("w", {{1, 1, 1, 1}}).ok());
    ASSERT_TRUE(opened.session->SetLearningRate(0.1f).ok());
    Feed(opened, std::vector<float>(4 * accumulation, 0));
    EXPECT_EQ(opened.Run().message(), "square_root 'layer' (backward): gives inf");
  }
}

}  // namespace
}  // namespace vpod::session
