// Checks the derivative of every operation.
#include <cmath>

#include "client/graph/gradients/gradient_check.h"

namespace vpod::graph {
namespace {

TEST(GradientTest, UnaryOperators) {
  const struct {
    v1::UnaryOperator op;
    float low, high;
  } kCases[] = {
      {v1::NEGATE, -2, 2},     {v1::ABSOLUTE, -2, 2},     {v1::EXPONENT, -2, 1},
      {v1::LOGARITHM, 0.5, 2}, {v1::SQUARE_ROOT, 0.5, 2}, {v1::SQUARE, -2, 2},
      {v1::TANH, -2, 2},       {v1::SIGMOID, -3, 3},      {v1::RELU, -2, 2},
      {v1::RELU6, -2, 2},      {v1::RELU6, 5, 8},         {v1::SILU, -3, 3},
      {v1::RECIPROCAL, 1, 2},  {v1::RECIPROCAL, -2, -1},  {v1::ERF_INV, -0.8, 0.8},
      {v1::ERF, -2, 2},        {v1::SIN, -3, 3},          {v1::COS, -3, 3},
      {v1::TAN, -1, 1},        {v1::ASIN, -0.8, 0.8},     {v1::ACOS, -0.8, 0.8},
      {v1::ATAN, -2, 2},       {v1::SINH, -2, 2},         {v1::COSH, -2, 2},
      {v1::ASINH, -2, 2},      {v1::ACOSH, 1.5, 3},       {v1::ATANH, -0.7, 0.7},
      {v1::EXPM1, -2, 1},      {v1::LOG1P, -0.5, 2},      {v1::RECIPROCAL_ROOT, 1, 3},
  };
  for (const auto& [op, low, high] : kCases) {
    SCOPED_TRACE(v1::UnaryOperator_Name(op));
    CheckGradients({{{3, 4}, low, high}},
                   [op = op](Graph& g, const auto& x) { return g.Unary(op, x[0]); });
    // The only value lies in the middle; not at zero, please.
    CheckGradients({{{}, low, high + 0.1f}},
                   [op = op](Graph& g, const auto& x) { return g.Unary(op, x[0]); });
  }
}

// Operators that are not among the other tests, too: an operator without one would be found only
// when somebody trains with it.
TEST(GradientTest, EveryOperatorThatGivesFloatsHasOne) {
  int operators = 0;
  const auto check = [&](const std::string& name, const auto& apply) {
    Graph g;
    const Tensor x = g.Input("x", {FLOAT32, {2, 3}}), y = apply(g, x);
    if (!g.TakeStatus().ok() || !program::IsFloat(g.TypeOf(y).type)) return;
    g.Gradients(g.Sum(y), {x});
    EXPECT_TRUE(g.status().ok()) << name << ": " << g.status();
    ++operators;
  };
  for (int op = 1; op < v1::UnaryOperator_ARRAYSIZE; ++op) {
    const auto function = static_cast<v1::UnaryOperator>(op);
    check(v1::UnaryOperator_Name(function),
          [&](Graph& g, Tensor x) { return g.Unary(function, x); });
  }
  for (int op = 1; op < v1::BinaryOperator_ARRAYSIZE; ++op) {
    const auto function = static_cast<v1::BinaryOperator>(op);
    check(v1::BinaryOperator_Name(function),
          [&](Graph& g, Tensor x) { return g.Binary(function, x, x); });
  }
  for (int op = 1; op < v1::ReduceOperator_ARRAYSIZE; ++op) {
    const auto function = static_cast<v1::ReduceOperator>(op);
    check(v1::ReduceOperator_Name(function),
          [&](Graph& g, Tensor x) { return g.Reduce(function, x, {0}); });
  }
  EXPECT_GE(operators, 33 + 15 + 5);
}

constexpr v1::BinaryOperator kBinary[] = {v1::ADD,     v1::SUBTRACT, v1::MULTIPLY, v1::DIVIDE,
                                          v1::MAXIMUM, v1::MINIMUM,  v1::POWER,    v1::ATAN2};

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

// Away from the jumps.
TEST(GradientTest, Remainders) {
  for (v1::BinaryOperator op : {v1::FMOD, v1::REMAINDER}) {
    SCOPED_TRACE(v1::BinaryOperator_Name(op));
    for (float sign : {1.0f, -1.0f}) {
      CheckGradients({{{2, 3}, 4.4f, 4.8f}, {{3}, 2, 2.1f}}, [&](Graph& g, const auto& x) {
        return g.Binary(op, x[0], g.Multiply(x[1], g.Constant({FLOAT32, {}}, sign)));
      });
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
  for (v1::ReduceOperator op : {v1::SUM, v1::MEAN, v1::MAX, v1::MIN, v1::PRODUCT}) {
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

TEST(GradientTest, SoftmaxOverAnyAxis) {
  for (uint32_t axis : {0u, 1u, 2u}) {
    CheckGradients({{{2, 4, 3}}}, [&](Graph& g, const auto& x) { return g.Softmax(x[0], axis); });
    CheckGradients({{{2, 4, 3}}},
                   [&](Graph& g, const auto& x) { return g.LogSoftmax(x[0], axis); });
  }
}

TEST(GradientTest, LayerNorm) {
  CheckGradients({{{2, 2, 5}}},
                 [](Graph& g, const auto& x) { return g.LayerNorm(x[0], {}, {}, 0.5f); });
  CheckGradients({{{2, 2, 5}}, {{5}, 0.5f, 2}, {{5}}},
                 [](Graph& g, const auto& x) { return g.LayerNorm(x[0], x[1], x[2], 0.5f); });
  CheckGradients({{{5}}, {{5}, 0.5f, 2}, {{5}}},
                 [](Graph& g, const auto& x) { return g.LayerNorm(x[0], x[1], x[2], 0.5f); });
}

// A loss may use the moments, with and without the normalised values.
TEST(GradientTest, MomentsOfBatchNorm) {
  for (const Dims& dims : {Dims{5, 3}, {2, 3, 4}}) {
    for (const bool with_y : {false, true}) {
      CheckGradients({{dims}, {{3}}, {{3}}}, [=](Graph& g, const auto& x) {
        const auto [y, mean, variance] = g.BatchNorm(x[0], x[1], x[2], 1e-2f);
        const Tensor moments = g.Add(mean, g.Unary(v1::SQUARE, variance));
        return with_y ? g.Add(g.Reduce(v1::SUM, y, {0}), g.Sum(moments)) : moments;
      });
    }
  }
}

TEST(GradientTest, MomentsOfLayerNorm) {
  for (const bool with_y : {false, true}) {
    CheckGradients({{{2, 3, 5}}}, [=](Graph& g, const auto& x) {
      v1::Instruction op;
      op.mutable_layer_norm()->set_epsilon(0.5f);
      const auto outputs = g.AddOperation(std::move(op), {x[0]});
      const Tensor moments = g.Add(outputs[1], g.Unary(v1::SQUARE, outputs[2]));
      return with_y ? g.Add(outputs[0], g.Reshape(moments, {2, 3, 1})) : moments;
    });
  }
}

TEST(GradientTest, MatMulOfManyMatrices) {
  const auto product = [](Graph& g, const auto& x) { return g.MatMul(x[0], x[1]); };
  CheckGradients({{{2, 3, 2, 4}}, {{2, 3, 4, 2}}}, product);
  CheckGradients({{{2, 3, 2}}, {{2, 3}}}, product);
  CheckGradients({{{2, 3}}, {{2, 1, 3, 2}}}, product);
  CheckGradients({{{2, 1, 2, 3}}, {{3, 3, 2}}}, product);
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
      {{2, 2, 3, 4}, {3, 2, 1, 1}, Graph::Sliding(2, 1, 2, 1), 1},  // padding beyond the window
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

// By windows that slide, and by others.
TEST(GradientTest, AdaptivePooling) {
  for (const Dims& size : {Dims{3, 3}, {1, 1}, {5, 2}, {4, 3}, {7, 5}}) {
    SCOPED_TRACE(absl::StrCat(size[0], " × ", size[1]));
    CheckGradients({{{2, 2, 5, 4}}},
                   [&](Graph& g, const auto& x) { return g.AdaptiveMaxPool(x[0], size).output; });
    CheckGradients({{{2, 2, 5, 4}}},
                   [&](Graph& g, const auto& x) { return g.AdaptiveAveragePool(x[0], size); });
  }
  CheckGradients({{{1, 2, 3, 5, 4}}}, [](Graph& g, const auto& x) {
    const Tensor y = g.Unary(v1::SQUARE, g.AdaptiveAveragePool(x[0], {2, 3, 3}));
    return g.Gradients(y, {x[0]})[0];
  });
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

// Rows 1 and 3 are ignored.
Tensor SomeIgnored(Graph& graph) {
  return graph.Buffer("labels", {INT32, {5}}, {2, -100, 0, -100, 1});
}

TEST(GradientTest, CrossEntropyWithOptions) {
  for (const float smoothing : {0.0f, 0.25f, 1.0f}) {
    SCOPED_TRACE(smoothing);
    CheckGradients({{{4, 3}}, {{4}, 0.1f, 2.9f}}, [&](Graph& g, const auto& x) {
      return g.SoftmaxCrossEntropy(x[0], Labels(g, x[1]), {.label_smoothing = smoothing});
    });
    CheckGradients({{{5, 3}}}, [&](Graph& g, const auto& x) {
      return g.SoftmaxCrossEntropy(x[0], SomeIgnored(g),
                                   {.label_smoothing = smoothing, .ignored_label = -100});
    });
    CheckGradients({{{5, 3}}}, [&](Graph& g, const auto& x) {
      return g.CrossEntropyLoss(x[0], SomeIgnored(g),
                                {.label_smoothing = smoothing, .ignored_label = -100});
    });
    // No row has the label: the mean is over all.
    CheckGradients({{{4, 3}}, {{4}, 0.1f, 2.9f}}, [&](Graph& g, const auto& x) {
      return g.CrossEntropyLoss(x[0], Labels(g, x[1]),
                                {.label_smoothing = smoothing, .ignored_label = 3});
    });
    CheckGradients({{{4, 3}}, {{4}, 0.1f, 2.9f}}, [&](Graph& g, const auto& x) {
      return g.CrossEntropyLoss(x[0], Labels(g, x[1]), {.label_smoothing = smoothing});
    });
  }
}

// The sum of the losses, 81,920, is more than float16 holds, their number more than it counts.
TEST(GradientTest, CrossEntropyOfManyRowsOfHalves) {
  const Function loss = [](Graph& g, const std::vector<Tensor>& x) {
    const Tensor logits = g.Expand(g.Cast(x[0], FLOAT16), {4097, 2});
    std::vector<float> labels(4097, 0);
    labels[7] = -1;
    return g.CrossEntropyLoss(logits, g.Buffer("labels", {INT32, {4097}}, labels),
                              {.ignored_label = -1});
  };
  Compiled compiled({{{2}}}, loss);
  ASSERT_TRUE(compiled.ok());
  compiled.Set(0, {-20, 0});
  compiled.Run();
  EXPECT_EQ(compiled.Output("y"), std::vector<float>{20});
}

// As in PyTorch: a mean over nothing, and nothing to learn from it.
TEST(GradientTest, CrossEntropyWithoutRows) {
  const Function loss = [](Graph& g, const std::vector<Tensor>& x) {
    const Tensor labels = g.Buffer("labels", {INT32, {2}}, {-100, -100});
    return g.CrossEntropyLoss(x[0], labels, {.label_smoothing = 0.1f, .ignored_label = -100});
  };
  Compiled compiled({{{2, 3}}}, loss);
  ASSERT_TRUE(compiled.ok());
  compiled.Set(0, {1, 2, 3, 4, 5, 6});
  compiled.Run();
  EXPECT_TRUE(std::isnan(compiled.Output("y")[0]));
  EXPECT_EQ(compiled.Output("dx0"), std::vector<float>(6, 0));
}

TEST(GradientTest, SelectWithBroadcasting) {
  const Dims kShapes[][3] = {
      {{2, 3}, {2, 3}, {2, 3}}, {{3}, {2, 3}, {2, 1}},       {{2, 1}, {}, {3}},
      {{}, {2, 3}, {3}},        {{2, 1, 2}, {3, 1}, {1, 2}}, {{2, 3}, {1}, {}},
  };
  for (const auto& [condition, a, b] : kShapes) {
    SCOPED_TRACE((TensorType{FLOAT32, a}.ToString()));
    std::vector<float> choice(static_cast<size_t>(TensorType{FLOAT32, condition}.elements()));
    for (size_t i = 0; i < choice.size(); ++i) choice[i] = i % 3 == 1 ? 0 : 1;
    CheckGradients({{a}, {b}}, [&, dims = condition](Graph& g, const auto& x) {
      const Tensor chosen = g.Buffer("condition", {v1::BOOL, dims}, choice);
      return g.Select(chosen, x[0], g.Unary(v1::SQUARE, x[1]));
    });
  }
  // The condition is of an operand itself.
  CheckGradients({{{3, 4}}, {{4}}}, [](Graph& g, const auto& x) {
    return g.Select(g.Binary(v1::LESS, x[0], x[1]), g.Multiply(x[0], x[1]), x[0]);
  });
}

TEST(GradientTest, Dropout) {
  for (const float probability : {0.0f, 0.25f, 0.75f, 1.0f}) {
    SCOPED_TRACE(probability);
    CheckGradients({{{4, 5}}, {{5}}}, [&](Graph& g, const auto& x) {
      const Tensor dropped = g.Dropout(x[0], probability);
      return g.Multiply(g.Dropout(dropped, 0.5f), x[1]);
    });
  }
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
    for (const auto softmax : {&Graph::Softmax, &Graph::LogSoftmax}) {
      CheckGradients({{{2, 3}}, {{2, 3}}}, [&](Graph& g, const auto& x) {
        const Tensor y = (g.*softmax)(g.Multiply(x[0], x[1]), 1);
        return g.Gradients(g.Unary(v1::SQUARE, y), x)[wanted];
      });
    }
    CheckGradients({{{2, 3}}, {{3, 4}}}, [&](Graph& g, const auto& x) {
      return g.Gradients(g.Unary(v1::TANH, g.MatMul(x[0], x[1])), x)[wanted];
    });
  }
}

TEST(GradientTest, UsesAreAddedWhereTheValueIs) {
  Graph graph;
  graph.SetIpu(3);
  const Tensor w = graph.Variable("w", {FLOAT16, {2}}, {1, 1});
  const Tensor loss = graph.Sum(graph.Add(w, graph.Unary(v1::SQUARE, w)));
  graph.SetIpu(1);
  const auto uses = graph.GradientsOfUses(loss, {w});
  EXPECT_EQ(uses[0].size(), 2u);
  const Tensor gradient = graph.Gradients(loss, {w})[0];
  EXPECT_EQ(graph.TypeOf(gradient).type, FLOAT16);
  for (const Node& node : graph.nodes()) EXPECT_EQ(node.ipu, 3u);
}

TEST(GradientTest, SecondDerivativesThatThereAreNotAreRefused) {
  {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {1, 4, 4, 2}});
    const Tensor y = graph.Unary(v1::SQUARE, graph.MaxPool(x, Graph::Sliding(2, 2, 2)));
    graph.Gradients(graph.Gradients(y, {x})[0], {x});
    EXPECT_EQ(graph.status().message(),
              "max_pool (backward): the gradient of max-pool has no derivative here");
  }
  {
    Graph graph;
    const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
    const Tensor y = graph.SoftmaxCrossEntropy(x, graph.Input("labels", {INT32, {2}}));
    graph.Gradients(graph.Gradients(y, {x})[0], {x});
    EXPECT_EQ(
        graph.status().message(),
        "softmax_cross_entropy (backward): the gradient of cross-entropy has no derivative here");
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

// A zero does not hide the derivatives of a product by it.
TEST(GradientAtZeroTest, ProductsLeaveTheZeroOut) {
  const Function product = [](Graph& g, const auto& x) { return g.Reduce(v1::PRODUCT, x[0], {0}); };
  std::vector<float> weights;
  std::vector<float> gradient = GradientsAt({{2, 0, 3}}, product, &weights)[0];
  EXPECT_EQ(gradient, (std::vector<float>{0, 6 * weights[0], 0}));
  EXPECT_EQ(GradientsAt({{2, 0, 0}}, product)[0], (std::vector<float>{0, 0, 0}));

  const Function products = [](Graph& g, const auto& x) {
    return g.Cumulate(v1::PRODUCT, x[0], 0);
  };
  gradient = GradientsAt({{2, 0, 3, 4}}, products, &weights)[0];
  const float at_zero = 2 * weights[1] + 6 * weights[2] + 24 * weights[3];
  EXPECT_EQ(gradient, (std::vector<float>{weights[0], at_zero, 0, 0}));
  gradient = GradientsAt({{2, 0, 0, 4}}, products, &weights)[0];
  EXPECT_EQ(gradient, (std::vector<float>{weights[0], 2 * weights[1], 0, 0}));
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
