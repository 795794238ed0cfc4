// Checks the derivative of every operation against central finite differences: the model is
// compiled once, run on the IPUModel, and run again with each element of each input moved up and
// down.
#include "client/graph/gradients/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::graph {
namespace {

using v1::FLOAT16;
using v1::FLOAT32;
using v1::INT32;

// An input of the function under test. Its values are distinct and evenly spread over the range, so
// that no step of the finite differences crosses a kink or exchanges the places of two elements.
struct Operand {
  Dims dims;
  float low = -2, high = 2;
};

using Function = std::function<Tensor(Graph&, const std::vector<Tensor>&)>;

std::vector<std::vector<float>> Spread(const std::vector<Operand>& operands) {
  std::vector<size_t> ranks(1);
  for (const Operand& operand : operands) {
    ranks.resize(ranks.size() + TensorType{FLOAT32, operand.dims}.elements());
  }
  ranks.pop_back();
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), std::mt19937(1));
  const auto total = static_cast<float>(ranks.size());
  std::vector<std::vector<float>> values;
  for (const Operand& operand : operands) {
    std::vector<float>& own = values.emplace_back();
    while (own.size() < static_cast<size_t>(TensorType{FLOAT32, operand.dims}.elements())) {
      const float place = (static_cast<float>(ranks.back()) + 0.5f) / total;
      own.push_back(operand.low + place * (operand.high - operand.low));
      ranks.pop_back();
    }
  }
  return values;
}

// A function of float32 inputs, compiled with the gradients of the sum of its product with random
// weights. With all weights equal, mistakes that only exchange elements would not show.
class Compiled {
 public:
  Compiled(const std::vector<Operand>& operands, const Function& function) {
    Graph graph;
    std::vector<Tensor> inputs;
    for (const Operand& operand : operands) {
      inputs.push_back(graph.Input(absl::StrCat("x", inputs.size()), {FLOAT32, operand.dims}));
    }
    const Tensor y = graph.Cast(function(graph, inputs), FLOAT32);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
    if (!graph.status().ok()) return;
    std::mt19937 random(2);
    std::uniform_real_distribution<float> uniform(-1, 1);
    weights_.resize(graph.TypeOf(y).elements());
    for (float& weight : weights_) weight = uniform(random);
    const Tensor weights = graph.Variable("weights", graph.TypeOf(y), weights_);
    const auto gradients = graph.Gradients(graph.Sum(graph.Multiply(y, weights)), inputs);
    graph.Output("y", y);
    for (size_t i = 0; i < gradients.size(); ++i) {
      graph.Output(absl::StrCat("dx", i), gradients[i]);
    }
    auto compiled = compiler::Compile(graph, {.programs = {{.name = "run"}}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return;
    auto session =
        session::Session::Create(*session::CreateIpuModel({.compute_threads = 1}), *compiled);
    EXPECT_TRUE(session.ok()) << session.status();
    if (session.ok()) session_ = *std::move(session);
  }

  bool ok() const { return session_ != nullptr; }

  void Set(size_t input, const std::vector<float>& values) {
    // An input that influences nothing has no stream.
    auto stream = session_->Stream<float>(absl::StrCat("x", input), 0);
    if (stream.ok()) std::copy(values.begin(), values.end(), stream->begin());
  }
  void Run() {
    const auto cycles = session_->Run("run");
    ASSERT_TRUE(cycles.ok()) << cycles.status();
  }
  std::vector<float> Output(const std::string& name) {
    const auto stream = *session_->Stream<float>(name, 0);
    return {stream.begin(), stream.end()};
  }
  // The weighted sum of the last outputs, added up in double.
  double Loss() {
    const std::vector<float> y = Output("y");
    return std::inner_product(y.begin(), y.end(), weights_.begin(), 0.0);
  }
  const std::vector<float>& weights() const { return weights_; }

 private:
  std::vector<float> weights_;
  std::unique_ptr<session::Session> session_;
};

void CheckGradients(const std::vector<Operand>& operands, const Function& function) {
  constexpr float kStep = 1.0f / 128;
  Compiled compiled(operands, function);
  if (!compiled.ok()) return;
  std::vector<std::vector<float>> values = Spread(operands);
  for (size_t i = 0; i < values.size(); ++i) compiled.Set(i, values[i]);
  for (size_t i = 0; i < values.size(); ++i) {
    compiled.Run();
    const std::vector<float> gradient = compiled.Output(absl::StrCat("dx", i));
    for (size_t e = 0; e < values[i].size(); ++e) {
      const float middle = values[i][e];
      double loss[2];
      for (int side = 0; side < 2; ++side) {
        values[i][e] = side == 0 ? middle - kStep : middle + kStep;
        compiled.Set(i, values[i]);
        compiled.Run();
        loss[side] = compiled.Loss();
      }
      const double slope = (loss[1] - loss[0]) / (2 * kStep);
      EXPECT_NEAR(gradient[e], slope, 1e-3 + 1e-3 * std::abs(slope))
          << "input " << i << " element " << e;
      values[i][e] = middle;
      compiled.Set(i, values[i]);
    }
  }
}

TEST(GradientTest, UnaryOperators) {
  const struct {
    v1::UnaryOperator op;
    float low, high;
  } kCases[] = {
      {v1::NEGATE, -2, 2},     {v1::ABSOLUTE, -2, 2},     {v1::EXPONENT, -2, 1},
      {v1::LOGARITHM, 0.5, 2}, {v1::SQUARE_ROOT, 0.5, 2}, {v1::SQUARE, -2, 2},
      {v1::TANH, -2, 2},       {v1::SIGMOID, -3, 3},      {v1::RELU, -2, 2},
      {v1::RECIPROCAL, 1, 2},  {v1::RECIPROCAL, -2, -1},
  };
  for (const auto& [op, low, high] : kCases) {
    SCOPED_TRACE(v1::UnaryOperator_Name(op));
    CheckGradients({{{3, 4}, low, high}},
                   [op = op](Graph& g, const auto& x) { return g.Unary(op, x[0]); });
    // The only value lies in the middle; not at zero, please.
    CheckGradients({{{}, low, high + 1}},
                   [op = op](Graph& g, const auto& x) { return g.Unary(op, x[0]); });
  }
}

constexpr v1::BinaryOperator kBinary[] = {v1::ADD,    v1::SUBTRACT, v1::MULTIPLY,
                                          v1::DIVIDE, v1::MAXIMUM,  v1::MINIMUM};

TEST(GradientTest, BinaryOperatorsWithBroadcasting) {
  const std::pair<Dims, Dims> kShapes[] = {
      {{2, 3}, {2, 3}},    {{2, 3}, {3}}, {{2, 3}, {2, 1}}, {{2, 3}, {}},        {{2, 1}, {1, 3}},
      {{2, 1, 4}, {3, 1}}, {{1}, {2, 3}}, {{1, 1}, {3}},    {{2, 3, 2}, {3, 1}}, {{}, {}},
  };
  for (v1::BinaryOperator op : kBinary) {
    for (const auto& [a, b] : kShapes) {
      for (bool swapped : {false, true}) {
        SCOPED_TRACE(absl::StrCat(v1::BinaryOperator_Name(op), " ",
                                  TensorType{FLOAT32, swapped ? b : a}.ToString(), " ",
                                  TensorType{FLOAT32, swapped ? a : b}.ToString()));
        // The same range for both, so that either may win a MAXIMUM; away from zero for DIVIDE.
        CheckGradients({{swapped ? b : a, 1, 3}, {swapped ? a : b, 1, 3}},
                       [op](Graph& g, const auto& x) { return g.Binary(op, x[0], x[1]); });
      }
    }
  }
}

TEST(GradientTest, BothOperandsTheSame) {
  for (v1::BinaryOperator op : {v1::ADD, v1::SUBTRACT, v1::MULTIPLY, v1::DIVIDE}) {
    SCOPED_TRACE(v1::BinaryOperator_Name(op));
    CheckGradients({{{2, 3}, 1, 3}},
                   [op](Graph& g, const auto& x) { return g.Binary(op, x[0], x[0]); });
  }
  CheckGradients({{{3, 3}}}, [](Graph& g, const auto& x) { return g.MatMul(x[0], x[0]); });
}

TEST(GradientTest, ReductionsOverEveryChoiceOfAxes) {
  for (v1::ReduceOperator op : {v1::SUM, v1::MEAN, v1::MAX, v1::MIN}) {
    for (uint32_t mask = 0; mask < 8; ++mask) {
      SCOPED_TRACE(absl::StrCat(v1::ReduceOperator_Name(op), " ", mask));
      std::vector<uint32_t> axes;
      for (uint32_t axis = 0; axis < 3; ++axis) {
        if (mask >> axis & 1) axes.push_back(axis);
      }
      CheckGradients({{{2, 3, 4}}},
                     [&](Graph& g, const auto& x) { return g.Reduce(op, x[0], axes); });
    }
    CheckGradients({{{}}}, [&](Graph& g, const auto& x) { return g.Reduce(op, x[0], {}); });
  }
}

TEST(GradientTest, MatMul) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      SCOPED_TRACE(absl::StrCat(ta, " ", tb));
      CheckGradients({{ta ? Dims{4, 2} : Dims{2, 4}}, {tb ? Dims{3, 4} : Dims{4, 3}}},
                     [&](Graph& g, const auto& x) { return g.MatMul(x[0], x[1], ta, tb); });
    }
  }
}

v1::SlidingWindow Uneven() {
  v1::SlidingWindow window = Graph::Sliding(2, 3, 2);
  window.set_stride(1, 1);
  window.set_pad_before(0, 1);
  window.set_pad_after(1, 2);
  return window;
}

TEST(GradientTest, Convolution) {
  struct Case {
    Dims image, weights;
    v1::SlidingWindow window;
    uint32_t groups;
  };
  const Case cases[] = {
      {{2, 2, 5, 4}, {3, 2, 3, 3}, Graph::Sliding(2, 3, 1, 1), 1},
      {{2, 4, 5, 5}, {4, 2, 2, 2}, Graph::Sliding(2, 2, 2, 1), 2},
      {{1, 3, 6, 7}, {3, 1, 2, 2}, Graph::Sliding(2, 2, 1, 1, 2), 3},
      {{2, 2, 9}, {3, 2, 3}, Graph::Sliding(1, 3, 2, 2), 1},
      {{1, 2, 3, 3, 3}, {2, 2, 2, 2, 2}, Graph::Sliding(3, 2), 1},
      {{2, 2, 5, 4}, {3, 2, 3, 3}, Uneven(), 1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.window.ShortDebugString());
    CheckGradients({{c.image}, {c.weights}}, [&](Graph& g, const auto& x) {
      return g.Convolution(x[0], x[1], c.window, c.groups);
    });
  }
}

TEST(GradientTest, Pooling) {
  for (const v1::SlidingWindow& window :
       {Graph::Sliding(2, 2, 2), Graph::Sliding(2, 3, 1), Graph::Sliding(2, 3, 2, 1),
        Graph::Sliding(2, 2, 1, 0, 2), Uneven()}) {
    SCOPED_TRACE(window.ShortDebugString());
    CheckGradients({{{2, 2, 5, 4}}},
                   [&](Graph& g, const auto& x) { return g.MaxPool(x[0], window); });
    for (bool count_padding : {false, true}) {
      CheckGradients({{{2, 2, 5, 4}}}, [&](Graph& g, const auto& x) {
        return g.AveragePool(x[0], window, count_padding);
      });
    }
  }
}

TEST(GradientTest, BatchNorm) {
  for (const Dims& dims : {Dims{5, 3}, {2, 3, 4}, {2, 3, 2, 3}}) {
    const Dims channels = {3};
    CheckGradients({{dims}, {channels}, {channels}},
                   [](Graph& g, const auto& x) { return g.BatchNorm(x[0], x[1], x[2], 1e-2f).y; });
    CheckGradients({{dims}, {channels}, {channels}, {channels}, {channels, 0.5, 2}},
                   [](Graph& g, const auto& x) {
                     return g.BatchNormInference(x[0], x[1], x[2], x[3], x[4], 1e-2f);
                   });
  }
}

// int32[4] with the values 0, 1, 2, 0 made from a float input, since the checker streams floats
// only.
Tensor Labels(Graph& graph, Tensor of) { return graph.Cast(of, INT32); }

TEST(GradientTest, SoftmaxCrossEntropy) {
  // The second input is constant within each label: truncation makes 0 to 2 of 0.1 to 2.9.
  CheckGradients({{{4, 3}}, {{4}, 0.1f, 2.9f}}, [](Graph& g, const auto& x) {
    return g.SoftmaxCrossEntropy(x[0], Labels(g, x[1]));
  });
}

TEST(GradientTest, ReshapesBetweenOperations) {
  CheckGradients({{{2, 6}}, {{3}}}, [](Graph& g, const auto& x) {
    const Tensor tall = g.Reshape(x[0], {4, 3});
    const Tensor y = g.Multiply(g.Reshape(g.Unary(v1::TANH, tall), {2, 2, 3}), x[1]);
    // The source of the reshape is used as well, and a reshape of a reshape.
    return g.Add(g.Reshape(y, {12}), g.Reshape(g.Reshape(x[0], {3, 4}), {12}));
  });
  CheckGradients({{{2, 3}}}, [](Graph& g, const auto& x) { return g.Reshape(x[0], {6}); });
}

TEST(GradientTest, ContributionsOfAllUsesAddUp) {
  CheckGradients({{{2, 3}, 0.5, 2}}, [](Graph& g, const auto& x) {
    const Tensor square = g.Unary(v1::SQUARE, x[0]);
    return g.Add(g.Add(g.Multiply(square, x[0]), g.Unary(v1::LOGARITHM, square)), x[0]);
  });
}

TEST(GradientTest, ADeepModel) {
  // The pooling comes first, where the distances between its elements are known.
  CheckGradients({{{2, 2, 6, 6}, -4, 4}, {{3, 2, 3, 3}, -1, 1}, {{27, 4}, -1, 1}, {{4}}},
                 [](Graph& g, const auto& x) {
                   const Tensor pooled = g.MaxPool(x[0], Graph::Sliding(2, 2, 2));
                   const Tensor conv =
                       g.Unary(v1::TANH, g.Convolution(pooled, x[1], Graph::Sliding(2, 3, 1, 1)));
                   const Tensor hidden = g.MatMul(g.Reshape(conv, {2, 27}), x[2]);
                   return g.Reduce(v1::MEAN, g.Unary(v1::SIGMOID, g.Add(hidden, x[3])), {0});
                 });
}

// The gradients of gradients: what the operators for gradients themselves pass back.
TEST(GradientTest, SecondDerivatives) {
  const auto twice = [](v1::UnaryOperator op) -> Function {
    return [op](Graph& g, const std::vector<Tensor>& x) {
      const Tensor inner = g.Unary(v1::SQUARE, g.Unary(op, x[0]));
      return g.Gradients(inner, {x[0]})[0];
    };
  };
  for (v1::UnaryOperator op : {v1::TANH, v1::SIGMOID, v1::RELU, v1::EXPONENT, v1::ABSOLUTE}) {
    SCOPED_TRACE(v1::UnaryOperator_Name(op));
    CheckGradients({{{2, 3}}}, twice(op));
  }
  for (int wanted : {0, 1}) {
    CheckGradients({{{1, 2, 4, 4}}, {{2, 2, 3, 3}}}, [&](Graph& g, const auto& x) {
      const Tensor inner = g.Unary(v1::TANH, g.Convolution(x[0], x[1], Graph::Sliding(2, 3, 1, 1)));
      return g.Gradients(inner, x)[wanted];
    });
    CheckGradients({{{2, 3}}, {{3, 4}}}, [&](Graph& g, const auto& x) {
      return g.Gradients(g.Unary(v1::TANH, g.MatMul(x[0], x[1])), x)[wanted];
    });
  }
}

TEST(GradientTest, SecondDerivativesThatThereAreNotAreRefused) {
  {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {1, 4, 4, 2}});
    const Tensor y = graph.Unary(v1::SQUARE, graph.MaxPool(x, Graph::Sliding(2, 2, 2)));
    graph.Gradients(graph.Gradients(y, {x})[0], {x});
    EXPECT_EQ(graph.status().message(), "the gradient of max-pool has no derivative here");
  }
  {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
    const Tensor y = graph.SoftmaxCrossEntropy(x, graph.Input("labels", {INT32, {2}}));
    graph.Gradients(graph.Gradients(y, {x})[0], {x});
    EXPECT_EQ(graph.status().message(), "the gradient of cross-entropy has no derivative here");
  }
}

// --- Where finite differences say nothing ---

std::vector<std::vector<float>> GradientsAt(const std::vector<std::vector<float>>& values,
                                            const Function& function,
                                            std::vector<float>* weights = nullptr) {
  std::vector<Operand> operands;
  for (const auto& own : values) operands.push_back({{static_cast<int64_t>(own.size())}});
  Compiled compiled(operands, function);
  if (!compiled.ok()) return {};
  for (size_t i = 0; i < values.size(); ++i) compiled.Set(i, values[i]);
  compiled.Run();
  if (weights != nullptr) *weights = compiled.weights();
  std::vector<std::vector<float>> gradients;
  for (size_t i = 0; i < values.size(); ++i) {
    gradients.push_back(compiled.Output(absl::StrCat("dx", i)));
  }
  return gradients;
}

TEST(GradientAtKinksTest, ZeroHasNoSlope) {
  for (v1::UnaryOperator op : {v1::RELU, v1::ABSOLUTE}) {
    EXPECT_EQ(GradientsAt({{0, 0}}, [op](Graph& g, const auto& x) { return g.Unary(op, x[0]); }),
              (std::vector<std::vector<float>>{{0, 0}}));
  }
}

TEST(GradientAtKinksTest, EqualOperandsShareTheGradient) {
  for (v1::BinaryOperator op : {v1::MAXIMUM, v1::MINIMUM}) {
    std::vector<float> weights;
    const auto gradients = GradientsAt(
        {{1, 2}, {1, 2}}, [op](Graph& g, const auto& x) { return g.Binary(op, x[0], x[1]); },
        &weights);
    for (float& weight : weights) weight /= 2;
    EXPECT_EQ(gradients, (std::vector<std::vector<float>>{weights, weights}));
  }
}

TEST(GradientAtKinksTest, EqualExtremaShareTheGradient) {
  for (v1::ReduceOperator op : {v1::MAX, v1::MIN}) {
    std::vector<float> weights;
    const auto gradients = GradientsAt(
        {{3, 3, 3}}, [op](Graph& g, const auto& x) { return g.Reduce(op, x[0], {0}); }, &weights);
    EXPECT_EQ(gradients[0], std::vector<float>(3, weights[0] / 3));
  }
}

TEST(GradientStopsTest, AtWhatHasNoDerivative) {
  const std::vector<Function> functions = {
      [](Graph& g, const auto& x) { return g.Binary(v1::LESS, x[0], x[1]); },
      [](Graph& g, const auto& x) { return g.Add(g.ArgMax(x[0]), g.ArgMax(x[1])); },
      [](Graph& g, const auto& x) { return g.Add(g.Cast(x[0], INT32), g.Cast(x[1], INT32)); },
      // Nothing flows to either input.
      [](Graph& g, const auto&) {
        return g.Constant({FLOAT32, {2}}, 3);
      },
  };
  for (const Function& function : functions) {
    EXPECT_EQ(GradientsAt({{1, 2}, {2, 1}}, function),
              (std::vector<std::vector<float>>{{0, 0}, {0, 0}}));
  }
}

TEST(GradientThroughHalfTest, IsRoundedToHalf) {
  std::vector<float> weights;
  const auto gradients = GradientsAt(
      {{1, 2, 3}}, [](Graph& g, const auto& x) { return g.Cast(x[0], FLOAT16); }, &weights);
  for (float& weight : weights) weight = static_cast<float>(static_cast<_Float16>(weight));
  EXPECT_EQ(gradients[0], weights);
}

}  // namespace
}  // namespace vpod::graph
