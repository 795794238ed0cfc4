// Checks the derivatives of views, Pad, Concat and slices whose place is data.
#include "client/graph/gradients/gradient_check.h"

namespace vpod::graph {
namespace {

TEST(DataMovementGradientTest, Transpose) {
  const std::pair<Dims, std::vector<uint32_t>> kCases[] = {
      {{2, 3}, {1, 0}},
      {{2, 3, 4}, {2, 0, 1}},  // not its own inverse
      {{2, 3, 4}, {0, 1, 2}},
      {{2, 1, 3, 2}, {3, 0, 1, 2}},
  };
  for (const auto& [dims, permutation] : kCases) {
    SCOPED_TRACE((TensorType{FLOAT32, dims}.ToString()));
    CheckGradients({{dims}}, [permutation = permutation](Graph& g, const auto& x) {
      return g.Transpose(x[0], permutation);
    });
  }
}

TEST(DataMovementGradientTest, Slice) {
  struct Case {
    Dims dims, begin, size, step;
  };
  const Case cases[] = {
      {{7}, {0}, {7}, {}},
      {{7}, {2}, {3}, {}},
      {{7}, {1}, {3}, {2}},  // one element remains behind the last
      {{7}, {0}, {2}, {4}},
      {{7}, {6}, {1}, {3}},
      {{4, 5}, {1, 0}, {2, 3}, {2, 2}},
      {{2, 6, 2, 3}, {1, 1, 0, 2}, {1, 2, 2, 1}, {1, 3, 1, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(TensorType{FLOAT32, c.dims}.ToString(), " from ", c.begin[0]));
    CheckGradients({{c.dims}},
                   [&](Graph& g, const auto& x) { return g.Slice(x[0], c.begin, c.size, c.step); });
  }
}

// There is no dimension left for what the gradient puts between the elements.
TEST(DataMovementGradientTest, SliceOfTheLargestRank) {
  CheckGradients({{{1, 2, 1, 3, 1, 2, 1, 3}}}, [](Graph& g, const auto& x) {
    return g.Slice(x[0], {0, 0, 0, 0, 0, 1, 0, 0}, {1, 2, 1, 2, 1, 1, 1, 2},
                   {1, 1, 1, 2, 1, 1, 1, 2});
  });
}

TEST(DataMovementGradientTest, Expand) {
  const std::pair<Dims, Dims> kCases[] = {
      {{}, {2, 3}},           {{1}, {4}},          {{3}, {2, 3}},    {{3, 1}, {3, 4}},
      {{1, 2, 1}, {3, 2, 2}}, {{2, 1}, {3, 2, 1}}, {{2, 3}, {2, 3}},
  };
  for (const auto& [dims, expanded] : kCases) {
    SCOPED_TRACE((TensorType{FLOAT32, expanded}.ToString()));
    CheckGradients({{dims}}, [expanded = expanded](Graph& g, const auto& x) {
      return g.Expand(x[0], expanded);
    });
  }
}

TEST(DataMovementGradientTest, Pad) {
  CheckGradients({{{4}}}, [](Graph& g, const auto& x) { return g.Pad(x[0], {2}, {1}, 3); });
  CheckGradients({{{2, 3}}}, [](Graph& g, const auto& x) { return g.Pad(x[0], {0, 2}, {1, 0}); });
  CheckGradients({{{1, 2, 2, 3}}}, [](Graph& g, const auto& x) {
    return g.Pad(x[0], {0, 1, 0, 2}, {0, 0, 1, 1}, -1);
  });
}

TEST(DataMovementGradientTest, Concat) {
  CheckGradients({{{3}}}, [](Graph& g, const auto& x) { return g.Concat({x[0]}, 0); });
  CheckGradients({{{2}}, {{3}}, {{1}}}, [](Graph& g, const auto& x) { return g.Concat(x, 0); });
  CheckGradients({{{2, 3}}, {{2, 1}}, {{2, 2}}},
                 [](Graph& g, const auto& x) { return g.Concat(x, 1); });
  // The contributions of both places add up; the part that is no input has no gradient.
  CheckGradients({{{2, 2}}}, [](Graph& g, const auto& x) {
    return g.Concat({x[0], g.Constant({FLOAT32, {1, 2}}, 5), x[0]}, 0);
  });
}

Tensor Start(Graph& g, const std::vector<float>& start) {
  return g.Buffer("start", {INT32, {static_cast<int64_t>(start.size())}}, start);
}

TEST(DataMovementGradientTest, DynamicSlice) {
  CheckGradients({{{7}}}, [](Graph& g, const auto& x) {
    return g.DynamicSlice(x[0], Start(g, {4}), {0}, {3});
  });
  CheckGradients({{{3, 4, 2}}}, [](Graph& g, const auto& x) {
    return g.DynamicSlice(x[0], Start(g, {1, 0}), {0, 1}, {2, 3});
  });
}

TEST(DataMovementGradientTest, DynamicUpdate) {
  CheckGradients({{{7}}, {{3}}}, [](Graph& g, const auto& x) {
    return g.DynamicUpdate(x[0], x[1], Start(g, {2}), {0});
  });
  CheckGradients({{{3, 4, 2}}, {{3, 2, 1}}}, [](Graph& g, const auto& x) {
    return g.DynamicUpdate(x[0], x[1], Start(g, {2, 1}), {1, 2});
  });
  // All of what was there is replaced, by a part of itself.
  CheckGradients({{{2, 3}}}, [](Graph& g, const auto& x) {
    const Tensor start = Start(g, {0, 0});
    const Tensor y = g.DynamicUpdate(x[0], g.Multiply(x[0], x[0]), start, {0, 1});
    return g.DynamicUpdate(y, g.DynamicSlice(y, start, {0, 1}, {1, 2}), start, {0, 1});
  });
}

// The compiler keeps images with the channels innermost through operations that take any layout.
TEST(DataMovementGradientTest, OfImagesBesideAConvolution) {
  CheckGradients({{{1, 2, 4, 4}}, {{2, 2, 3, 3}, -1, 1}}, [](Graph& g, const auto& x) {
    const Tensor image = g.Pad(x[0], {0, 0, 1, 1}, {0, 0, 1, 1});
    const Tensor y = g.Unary(v1::TANH, g.Convolution(image, x[1], Graph::Sliding(2, 3)));
    const Tensor both = g.Concat({y, g.Transpose(x[0], {0, 1, 3, 2})}, 1);
    return g.Slice(both, {0, 1, 0, 1}, {1, 3, 2, 2}, {1, 1, 2, 1});
  });
}

TEST(DataMovementGradientTest, SecondDerivativesOfDynamicSlices) {
  CheckGradients({{{5, 2}}, {{2, 2}}}, [](Graph& g, const auto& x) {
    const Tensor start = Start(g, {1});
    const Tensor both = g.DynamicUpdate(x[0], g.Unary(v1::SQUARE, x[1]), start, {0});
    const Tensor part = g.DynamicSlice(both, g.Add(start, start), {0}, {3});
    return g.Gradients(g.Unary(v1::SQUARE, g.Unary(v1::SQUARE, part)), {x[1]})[0];
  });
}

TEST(DataMovementGradientTest, SecondDerivatives) {
  CheckGradients({{{2, 7}}}, [](Graph& g, const auto& x) {
    const Tensor part = g.Slice(g.Transpose(x[0], {1, 0}), {1, 0}, {3, 2}, {2, 1});
    const Tensor wide = g.Expand(g.Pad(part, {1, 0}, {0, 1}, 1), {2, 4, 3});
    const Tensor y = g.Unary(v1::TANH, g.Concat({wide, wide}, 2));
    return g.Gradients(g.Unary(v1::SQUARE, y), {x[0]})[0];
  });
}

// The indices are functions of the places, so that they are the same in each run.
TEST(GradientTest, Gather) {
  const auto indices = [](Graph& g, const Dims& dims, uint32_t axis, double modulus) {
    const Tensor places = g.Iota({INT32, dims}, axis);
    return g.Binary(v1::REMAINDER, g.Multiply(places, g.Constant({INT32, {}}, 5)),
                    g.Constant({INT32, {}}, modulus));
  };
  CheckGradients({{{2, 4, 3}}}, [&](Graph& g, const auto& x) {
    return g.Gather(x[0], indices(g, {2, 3}, 1, 4), 1);
  });
  CheckGradients({{{2, 4, 3}}}, [&](Graph& g, const auto& x) {
    return g.Gather(x[0], indices(g, {2, 6, 3}, 1, 4), 1, true);
  });
  for (v1::Scatter::Combine combine : {v1::Scatter::SET, v1::Scatter::ADD}) {
    CheckGradients({{{4, 3}}, {{3, 3}}}, [&](Graph& g, const auto& x) {
      return g.Scatter(combine, x[0], indices(g, {3}, 0, 4), x[1], 0);
    });
    CheckGradients({{{4, 3}}, {{3, 3}}}, [&](Graph& g, const auto& x) {
      return g.Scatter(combine, x[0], indices(g, {3, 3}, 0, 4), x[1], 0, true);
    });
  }
}

}  // namespace
}  // namespace vpod::graph
