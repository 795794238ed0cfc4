// Gradients that are joined: of slices of one value, and of products with one matrix.
#include "client/graph/gradients/gradient_check.h"

namespace vpod::graph {
namespace {

// Several slices of one value: in any order, with gaps, one over the other, and across each other.
TEST(JoiningTest, Slices) {
  struct Part {
    Dims begin, size;
  };
  const std::vector<Part> cases[] = {
      {{{2, 0}, {2, 3}}, {{0, 0}, {2, 3}}, {{4, 0}, {1, 3}}},  // all rows
      {{{0, 0}, {1, 3}}, {{1, 0}, {1, 3}}, {{4, 0}, {1, 3}}},
      {{{0, 0}, {3, 3}}, {{1, 0}, {4, 3}}, {{3, 0}, {2, 3}}, {{0, 0}, {5, 3}}},
      {{{0, 0}, {5, 2}}, {{0, 2}, {5, 1}}, {{1, 0}, {1, 3}}, {{1, 1}, {2, 1}}},
  };
  for (const std::vector<Part>& parts : cases) {
    CheckGradients({{{5, 3}}}, [&](Graph& g, const auto& x) {
      Tensor sum;
      float factor = 1;
      for (const Part& part : parts) {
        const Tensor term =
            g.Sum(g.Multiply(g.Unary(v1::SQUARE, g.Slice(x[0], part.begin, part.size)),
                             g.Constant({FLOAT32, {}}, factor++)));
        sum = sum.valid() ? g.Add(sum, term) : term;
      }
      return sum;
    });
  }
}

TEST(JoiningTest, SlicesOfAWholeAreConcatenated) {
  Graph graph;
  const Tensor x = graph.Variable("x", {FLOAT32, {4, 2}}, std::vector<float>(8, 1));
  Tensor product;
  for (int64_t row : {3, 0, 2, 1}) {
    const Tensor slice = graph.Slice(x, {row, 0}, {1, 2});
    product = product.valid() ? graph.Multiply(product, slice) : slice;
  }
  EXPECT_EQ(graph.GradientsOfUses(graph.Sum(product), {x})[0].size(), 1u);
  size_t concats = 0;
  for (const Node& node : graph.nodes()) {
    EXPECT_FALSE(node.instruction.has_pad());
    concats += node.instruction.has_concat() ? 1 : 0;
  }
  EXPECT_EQ(concats, 1u);
}

int Count(const Graph& graph, v1::Instruction::AttributesCase op) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(),
                    [op](const Node& node) { return node.instruction.attributes_case() == op; }));
}

// As in a squeeze-and-excitation block: the gradient of the mean, one element for each image and
// channel, is added to that of the product.
TEST(JoiningTest, TheGradientOfAMeanIsNotWrittenOut) {
  const auto excite = [](Graph& graph, const std::vector<Tensor>& x) {
    const Tensor y = graph.Unary(v1::SQUARE, x[0]);
    const Tensor mean = graph.Reshape(graph.Reduce(v1::MEAN, y, {2, 3}), {2, 3, 1, 1});
    return graph.Multiply(y, graph.Unary(v1::SIGMOID, mean));
  };
  CheckGradients({{{2, 3, 4, 4}}}, excite);
  Graph graph;
  const Tensor x = graph.Variable("x", {FLOAT32, {2, 3, 4, 4}}, std::vector<float>(96, 1));
  EXPECT_TRUE(graph.Gradients(graph.Sum(excite(graph, {x})), {x})[0].valid());
  EXPECT_EQ(Count(graph, v1::Instruction::kExpand), 1);  // of the loss
}

// The steps of a recurrent network.
TEST(JoiningTest, ProductsOfOneMatrixAreJoined) {
  for (const bool transposed : {false, true}) {
    CheckGradients({{{2, 4}}, {{4, 4}}}, [transposed](Graph& graph, const std::vector<Tensor>& x) {
      Tensor h = x[0];
      for (int step = 0; step < 3; ++step)
        h = graph.Unary(v1::TANH, graph.MatMul(h, x[1], false, transposed));
      return h;
    });
    Graph graph;
    const Tensor w = graph.Variable("w", {FLOAT32, {4, 4}}, std::vector<float>(16, 1));
    Tensor h = graph.Input("x", {FLOAT32, {2, 4}});
    for (int step = 0; step < 3; ++step)
      h = graph.Unary(v1::TANH, graph.MatMul(h, w, false, transposed));
    EXPECT_EQ(graph.GradientsOfUses(graph.Sum(h), {w})[0].size(), 1u);
    EXPECT_EQ(Count(graph, v1::Instruction::kConcat), 2);
  }
  // In float16 neither the products nor their sum would fit.
  Graph half;
  const Tensor w16 = half.Variable("w", {FLOAT16, {4, 4}}, std::vector<float>(16, 1));
  const Tensor x16 = half.Input("x", {FLOAT16, {1, 4}});
  const Tensor y16 = half.Add(half.MatMul(x16, w16), half.MatMul(half.Relu(x16), w16));
  const auto uses = half.GradientsOfUses(half.Sum(half.Cast(y16, FLOAT32)), {w16});
  ASSERT_EQ(uses[0].size(), 1u);
  EXPECT_EQ(half.TypeOf(uses[0][0]).type, FLOAT32);
  // To copy long operands would cost more than to add the results.
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {4, 4}}, std::vector<float>(16, 1));
  const Tensor x = graph.Input("x", {FLOAT32, {8, 4}});
  const Tensor sum = graph.Sum(graph.Add(graph.MatMul(x, w), graph.MatMul(graph.Relu(x), w)));
  EXPECT_EQ(graph.GradientsOfUses(sum, {w})[0].size(), 2u);
}

TEST(JoiningTest, AMissingDerivativeBesideSlicesIsAnError) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {6}});
  Tensor loss = graph.Sum(graph.AllToAll(graph.Slice(x, {0}, {2}), 2));
  for (int64_t begin : {2, 4}) loss = graph.Add(loss, graph.Sum(graph.Slice(x, {begin}, {2})));
  graph.Gradients(loss, {x});
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kUnimplemented) << graph.status();
}

}  // namespace
}  // namespace vpod::graph
