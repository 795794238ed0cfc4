// Checks gradients that a program defines itself: finite differences say nothing about them.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "client/graph/gradients/gradient_check.h"
#include "client/graph/gradients/two_inputs.h"

namespace vpod::graph {
namespace {

using ::testing::Each;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

Values Map(const Values& values, const std::function<float(float)>& function) {
  Values mapped;
  for (float value : values) mapped.push_back(function(value));
  return mapped;
}
Values Map(const Values& a, const Values& b, const std::function<float(float, float)>& function) {
  Values mapped;
  for (size_t i = 0; i < a.size(); ++i) mapped.push_back(function(a[i], b[i]));
  return mapped;
}

Tensor Times(Graph& g, Tensor x, double factor) {
  return g.Multiply(x, g.Constant({g.TypeOf(x).type, {}}, factor));
}

// A hook of a tensor: its gradient goes by way of a function.
Tensor Hooked(Graph& g, Tensor x, const std::function<Tensor(Tensor)>& hook) {
  const Graph::Region region = g.AddRegion({x}, {x});
  g.RecordRegion(region, [&] { return std::vector{hook(region.cotangents[0])}; });
  return region.outputs.empty() ? Tensor{} : region.outputs[0];
}

TEST(RegionGradientTest, ReplacesTheGradientOfAFunction) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor rectified = g.Multiply(g.Relu(x[0]), x[1]);
    const Graph::Region region = g.AddRegion({rectified}, {x[0]});
    g.RecordRegion(region, [&] {
      const Tensor passes = g.Binary(v1::GREATER, x[0], g.Constant({FLOAT32, {}}, -3));
      return std::vector{Times(g, g.Multiply(region.cotangents[0], g.Cast(passes, FLOAT32)), 4)};
    });
    return region.outputs[0];
  });
  EXPECT_EQ(result.y, (Values{3.75f, 0, -0.75f}));
  EXPECT_THAT(result.dx, Pointwise(FloatEq(), Map(result.weights, [](float w) { return 4 * w; })));
  EXPECT_THAT(result.dz, Each(0));  // not an input of the region
}

TEST(RegionGradientTest, AHookScalesTheSumOfTheGradients) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor hooked = Hooked(g, x[0], [&](Tensor gradient) { return Times(g, gradient, 3); });
    return g.Add(g.Add(Times(g, hooked, 2), hooked), g.Add(x[0], x[1]));
  });
  EXPECT_THAT(result.dx, Pointwise(FloatEq(), Map(result.weights,
                                                  [](float w) { return 3 * (2 * w + w) + w; })));
  EXPECT_THAT(result.dz, Pointwise(FloatEq(), result.weights));
}

TEST(RegionGradientTest, HooksOfHooksRunFromTheLoss) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const auto limited = [&](Tensor gradient) {
      const TensorType scalar{FLOAT32, {}};
      return g.Binary(v1::MINIMUM, gradient, g.Constant(scalar, 0.25));
    };
    const Tensor last = Hooked(g, x[0], limited);
    return Hooked(g, last, [&](Tensor gradient) { return Times(g, gradient, 2); });
  });
  EXPECT_THAT(result.dx, Pointwise(FloatEq(), Map(result.weights,
                                                  [](float w) { return std::min(2 * w, 0.25f); })));
}

TEST(RegionGradientTest, TwoOutputsAndTwoInputs) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Graph::Region region =
        g.AddRegion({g.Multiply(x[0], x[1]), g.Add(x[0], x[1])}, {x[0], x[1]});
    g.RecordRegion(region, [&] {
      const auto& c = region.cotangents;
      return std::vector{g.Add(c[0], Times(g, c[1], 8)), g.Multiply(c[0], x[0])};
    });
    return g.Add(region.outputs[0], Times(g, region.outputs[1], 2));
  });
  EXPECT_EQ(result.y, Map(kX, kZ, [](float x, float z) { return x * z + 2 * (x + z); }));
  EXPECT_THAT(result.dx,
              Pointwise(FloatEq(), Map(result.weights, [](float w) { return w + 16 * w; })));
  EXPECT_THAT(result.dz, Pointwise(FloatEq(), Map(result.weights, kX, std::multiplies<>())));
}

TEST(RegionGradientTest, TheCotangentOfAnOutputThatIsNotUsedIsZeros) {
  for (size_t used : {0, 1}) {
    const Result result = ResultOf([&](Graph& g, const auto& x) {
      const Graph::Region region = g.AddRegion({g.Relu(x[0]), g.Relu(x[1])}, {x[0], x[1]});
      g.RecordRegion(region, [&] {
        const Tensor two = g.Constant({FLOAT32, {}}, 2);
        return std::vector{g.Add(region.cotangents[0], two), g.Add(region.cotangents[1], two)};
      });
      return region.outputs[used];
    });
    EXPECT_THAT(used == 0 ? result.dx : result.dz,
                Pointwise(FloatEq(), Map(result.weights, [](float w) { return w + 2; })));
    EXPECT_THAT(used == 0 ? result.dz : result.dx, Each(2));
  }
}

TEST(RegionGradientTest, AnInputMayHaveNone) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Graph::Region region = g.AddRegion({g.Multiply(x[0], x[1])}, {x[0], x[1]});
    g.RecordRegion(region, [&] { return std::vector{Tensor{}, region.cotangents[0]}; });
    return region.outputs[0];
  });
  EXPECT_THAT(result.dx, Each(0));
  EXPECT_THAT(result.dz, Pointwise(FloatEq(), result.weights));
}

// A hook may be registered long after its tensor was made and used.
TEST(RegionGradientTest, ReadsValuesThatAreMadeLater) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Graph::Region region = g.AddRegion({x[0]}, {x[0]});
    const Tensor later = g.Unary(v1::NEGATE, g.Multiply(region.outputs[0], x[1]));
    g.RecordRegion(region, [&] { return std::vector{g.Add(region.cotangents[0], later)}; });
    return g.Add(region.outputs[0], x[1]);
  });
  const Values products = Map(kX, kZ, std::multiplies<>());
  EXPECT_THAT(result.dx, Pointwise(FloatEq(), Map(result.weights, products, std::minus<>())));
  EXPECT_THAT(result.dz, Pointwise(FloatEq(), result.weights));
}

// Values that no operation makes are copied with the others, and parts of outputs are joined first.
TEST(RegionGradientTest, AliasesAndParts) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor hooked = Hooked(g, x[0], [&](Tensor gradient) {
      const Tensor twice = Times(g, g.Reshape(gradient, {3, 1}), 2);
      return g.Reshape(g.Add(g.Reshape(g.Reshape(twice, {1, 3}), {3, 1}), g.Reshape(x[1], {3, 1})),
                       {3});
    });
    return g.Concat({g.Slice(hooked, {1}, {2}), g.Slice(hooked, {0}, {1})}, 0);
  });
  const Values& w = result.weights;
  EXPECT_EQ(result.y, (Values{kX[1], kX[2], kX[0]}));
  EXPECT_THAT(result.dx, Pointwise(FloatEq(), Map({w[2], w[0], w[1]}, kZ,
                                                  [](float w, float z) { return 2 * w + z; })));
  EXPECT_THAT(result.dz, Each(0));
}

TEST(RegionGradientTest, Float16) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor half = Hooked(g, g.Cast(x[0], FLOAT16), [&](Tensor) {
      return g.Constant({FLOAT16, {3}}, 0.375);
    });
    return g.Add(half, half);
  });
  EXPECT_THAT(result.dx, Each(0.375f));
}

// Random numbers of a region follow from the state of the graph, which forward may read as well.
TEST(RegionGradientTest, RandomNumbers) {
  const Result result = ResultOf([](Graph& g, const auto& x) {
    const Tensor hooked = Hooked(g, x[0], [&](Tensor gradient) {
      return g.Dropout(
          g.Add(g.Multiply(gradient, g.Constant({FLOAT32, {}}, 0)), g.Constant({FLOAT32, {}}, 1)),
          0.5f);
    });
    return g.Dropout(hooked, 0.5f);
  });
  for (size_t i = 0; i < kX.size(); ++i) {
    EXPECT_TRUE(result.dx[i] == 0 || result.dx[i] == 2) << result.dx[i];
    EXPECT_TRUE(result.y[i] == 0 || result.y[i] == 2 * kX[i]) << result.y[i];
  }
}

TEST(RegionGradientTest, EachLossHasItsOwnCopy) {
  Graph g;
  const Tensor x = g.Input("x", {FLOAT32, {3}}), unrelated = g.Input("z", {FLOAT32, {}});
  const Tensor y = Hooked(g, x, [&](Tensor gradient) { return Times(g, gradient, 3); });
  const size_t nodes = g.nodes().size();
  EXPECT_FALSE(g.Gradients(g.Relu(unrelated), {x})[0].valid());
  const Tensor first = g.Gradients(g.Sum(y), {x})[0];
  const Tensor second = g.Gradients(g.Mean(y), {x})[0];
  ASSERT_TRUE(g.status().ok()) << g.status();
  ASSERT_TRUE(first.valid() && second.valid());
  EXPECT_NE(first, second);
  EXPECT_GT(g.nodes().size(), nodes);
  size_t made = 0;
  for (const Node& node : g.nodes()) {
    for (uint32_t output : node.instruction.outputs()) made += output == first.id;
    for (uint32_t input : node.instruction.inputs()) EXPECT_EQ(g.values()[input].region, ~0u);
  }
  EXPECT_EQ(made, 1u);
}

TEST(RegionGradientTest, OperationsAreOfTheBackwardPhaseAndOfTheirScope) {
  Graph g;
  const Tensor x = g.Input("x", {FLOAT32, {3}});
  g.SetIpu(1);
  g.SetStage(2);
  const Tensor y = g.Relu(x);
  g.SetIpu(3);
  g.SetStage(4);
  const Graph::Scope scope(g, "hooks");
  const Tensor hooked =
      Hooked(g, y, [&](Tensor gradient) { return g.Unary(v1::NEGATE, gradient); });
  EXPECT_EQ(g.ipu(), 3u);
  EXPECT_EQ(g.stage(), 4u);
  const Tensor gradient = g.Gradients(g.Sum(hooked), {y})[0];
  ASSERT_TRUE(g.status().ok()) << g.status();
  const auto node = std::find_if(g.nodes().begin(), g.nodes().end(), [&](const Node& each) {
    return each.instruction.outputs_size() > 0 && each.instruction.outputs(0) == gradient.id;
  });
  ASSERT_NE(node, g.nodes().end());
  const v1::Origin& origin = g.origins().at(node->origin);
  EXPECT_EQ(node->ipu, 1u);
  EXPECT_EQ(origin.stage(), 2u);
  EXPECT_EQ(origin.phase(), v1::Origin::BACKWARD);
  EXPECT_EQ(origin.scope(), "hooks");
}

// --- Refusals ---

class RegionRefusalTest : public testing::Test {
 protected:
  std::string Recorded(const std::function<std::vector<Tensor>()>& record) {
    g_.RecordRegion(region_, record);
    return std::string(g_.TakeStatus().message());
  }

  Graph g_;
  const Tensor x_ = g_.Variable("x", {FLOAT32, {3}}, {1, 2, 3});
  const Graph::Region region_ = g_.AddRegion({g_.Relu(x_)}, {x_});
  const Tensor cotangent_ = region_.cotangents[0];
};

TEST_F(RegionRefusalTest, GradientsOfOtherNumbersOrTypes) {
  EXPECT_THAT(Recorded([] { return std::vector<Tensor>(); }),
              HasSubstr("gradient_region: there are 0 gradients, must be one of each of 1 inputs"));
  const Graph::Region other = g_.AddRegion({x_}, {x_});
  g_.RecordRegion(other, [&] { return std::vector{g_.Sum(other.cotangents[0])}; });
  EXPECT_THAT(std::string(g_.TakeStatus().message()),
              HasSubstr("the gradient of input 0 is float32[], must be float32[3]"));
}

TEST_F(RegionRefusalTest, SecondRecordings) {
  EXPECT_EQ(Recorded([&] { return std::vector{cotangent_}; }), "");
  EXPECT_THAT(Recorded([&] { return std::vector{cotangent_}; }), HasSubstr("recorded already"));
  Graph another;
  EXPECT_THAT((another.RecordRegion({}, [] { return std::vector<Tensor>(); }),
               std::string(another.status().message())),
              HasSubstr("it is not one of this graph"));
}

TEST_F(RegionRefusalTest, ValuesOfARegionOutsideIt) {
  Tensor inside;
  EXPECT_EQ(Recorded([&] { return std::vector{inside = g_.Relu(cotangent_)}; }), "");
  for (Tensor tensor : {inside, cotangent_}) {
    g_.Add(x_, tensor);
    EXPECT_THAT(std::string(g_.TakeStatus().message()),
                HasSubstr("operand 1 belongs to a gradient region"));
  }
  const Graph::Region other = g_.AddRegion({x_}, {x_});
  g_.RecordRegion(other, [&] { return std::vector{inside}; });
  EXPECT_THAT(std::string(g_.TakeStatus().message()), HasSubstr("belongs to a gradient region"));
}

TEST_F(RegionRefusalTest, WhatIsOfTheForwardPass) {
  const std::vector<std::function<void(Tensor)>> calls = {
      [&](Tensor cotangent) { g_.Assign(x_, cotangent); },
      [&](Tensor cotangent) { g_.Output("gradient", cotangent); },
      [&](Tensor cotangent) { g_.Checkpoint(cotangent); },
      [&](Tensor cotangent) { g_.AddRegion({cotangent}, {cotangent}); },
      [&](Tensor cotangent) { g_.Gradients(g_.Sum(cotangent), {cotangent}); },
      [&](Tensor) { g_.RecordRegion(region_, [] { return std::vector<Tensor>(); }); },
  };
  for (const auto& call : calls) {
    const Graph::Region region = g_.AddRegion({x_}, {x_});
    g_.RecordRegion(region, [&] {
      call(region.cotangents[0]);
      return std::vector{region.cotangents[0]};
    });
    EXPECT_THAT(std::string(g_.TakeStatus().message()), HasSubstr("not allowed in a gradient"));
  }
  g_.AddRegion({}, {x_});
  EXPECT_THAT(std::string(g_.TakeStatus().message()), HasSubstr("there is no value"));
}

// Variables and constants that are created while a region is recorded belong to the graph.
TEST_F(RegionRefusalTest, StateAndConstantsAreNotOfTheRegion) {
  Tensor variable, constant;
  EXPECT_EQ(Recorded([&] {
              variable = g_.Variable("w", {FLOAT32, {3}}, {1, 2, 3});
              constant = g_.Constant({FLOAT32, {3}}, 2);
              return std::vector{g_.Multiply(cotangent_, variable)};
            }),
            "");
  g_.Output("product", g_.Multiply(variable, constant));
  EXPECT_TRUE(g_.status().ok()) << g_.status();
}

}  // namespace
}  // namespace vpod::graph
