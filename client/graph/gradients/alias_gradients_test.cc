// Checks where the gradients of aliases go. Finite differences do not tell: a stop and a pass-by
// change the gradient, and not the value.
#include <cmath>

#include "client/graph/gradients/gradient_check.h"
#include "client/graph/gradients/two_inputs.h"

namespace vpod::graph {
namespace {

// Element by element.
Values Times(const Values& a, const Values& b) {
  Values product(a.size());
  std::transform(a.begin(), a.end(), b.begin(), product.begin(), std::multiplies<>());
  return product;
}

const Values kZeros(3);

TEST(AliasGradientTest, NoneFlowsThroughAStop) {
  const Result result =
      ResultOf([](Graph& g, const auto& x) { return g.Multiply(g.Stop(x[0]), g.Relu(x[1])); });
  EXPECT_EQ(result.y, (Values{3.75f, -0.6875f, 0}));
  EXPECT_EQ(result.dx, kZeros);
  EXPECT_EQ(result.dz, (Values{result.weights[0] * 1.25f, result.weights[1] * -2.75f, 0}));
}

TEST(AliasGradientTest, OtherUsesOfAStoppedValueKeepTheirs) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor square = g.Multiply(x[0], g.Stop(x[0]));
    return g.Add(square, g.Stop(g.Multiply(square, x[1])));
  });
  EXPECT_EQ(result.dx, Times(result.weights, kX));
  EXPECT_EQ(result.dz, kZeros);
}

TEST(AliasGradientTest, ReshapesOnBothSidesOfAStop) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor stopped = g.Reshape(g.Stop(g.Reshape(x[0], {3, 1})), {3});
    return g.Add(g.Multiply(stopped, x[1]), g.Reshape(g.Reshape(x[0], {1, 3}), {3}));
  });
  EXPECT_EQ(result.dx, result.weights);
  EXPECT_EQ(result.dz, Times(result.weights, kX));
}

TEST(AliasGradientTest, AStraightThroughRounding) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor scaled = g.Multiply(x[0], x[1]);
    return g.PassBy(g.Unary(v1::ROUND, scaled), scaled);
  });
  EXPECT_EQ(result.y, (Values{4, -1, -1}));
  EXPECT_EQ(result.dx, Times(result.weights, kZ));
  EXPECT_EQ(result.dz, Times(result.weights, kX));
}

// The value itself gets none.
TEST(AliasGradientTest, APassByGivesAllToItsSource) {
  const Result result =
      ResultOf([](Graph& g, const auto& x) { return g.PassBy(g.Multiply(x[0], x[0]), x[1]); });
  EXPECT_EQ(result.y, Times(kX, kX));
  EXPECT_EQ(result.dx, kZeros);
  EXPECT_EQ(result.dz, result.weights);
}

TEST(AliasGradientTest, TheSourceOfAPassByMayBeAnAlias) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor through = g.PassBy(x[1], g.Reshape(g.Reshape(x[0], {3, 1}), {3}));
    return g.Add(g.PassBy(x[0], g.Stop(x[0])), g.Multiply(through, g.PassBy(x[1], through)));
  });
  EXPECT_EQ(result.y, (Values{10.25f, -2.6875f, 2.75f}));
  // The product's two gradients, each weight times z, both go by way of `through`.
  const Values once = Times(result.weights, kZ);
  for (size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(result.dx[i], 2 * once[i]);
  EXPECT_EQ(result.dz, kZeros);
}

TEST(AliasGradientTest, ALossThatIsStoppedHasNone) {
  Graph g;
  const Tensor x = g.Input("x", {FLOAT32, {3}});
  const Tensor loss = g.Stop(g.Sum(x));
  EXPECT_FALSE(g.Gradients(loss, {x})[0].valid());
  EXPECT_TRUE(g.GradientsOfUses(loss, {x})[0].empty());
  EXPECT_TRUE(g.Gradients(loss, {loss})[0].valid());
  EXPECT_TRUE(g.status().ok()) << g.status();
}

// The accumulator adds them, so that the sum does not depend on how micro-batches are cut.
TEST(AliasGradientTest, UsesOfAVariableStayApartBehindAPassBy) {
  Graph g;
  const Tensor w = g.Variable("w", {FLOAT32, {3}}, {1, 2, 3});
  const Tensor clamped = g.PassBy(g.Unary(v1::RELU6, w), w);
  const Tensor y = g.Multiply(g.Unary(v1::TANH, clamped), g.Unary(v1::SIGMOID, clamped));
  EXPECT_EQ(g.GradientsOfUses(g.Sum(g.Add(y, g.Stop(w))), {w})[0].size(), 2u);
  EXPECT_TRUE(g.status().ok()) << g.status();
}

}  // namespace
}  // namespace vpod::graph
