#include "client/nn/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::nn {
namespace {

using program::v1::FLOAT32;

TEST(BuilderTest, NamesAndFirstValuesAreThoseOfPyTorch) {
  Graph graph;
  const Builder net(graph, {.seed = 7});
  const Tensor x = graph.Input("x", {FLOAT32, {2, 4, 8, 8}});
  const Tensor y = net.In("features").In("0").Convolution("conv", x, 6, {.kernel = 3, .groups = 2});
  net.In("head").Linear("fc", net.Flatten(y), 5);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  std::vector<std::string> names;
  for (Tensor variable : graph.variables()) {
    names.push_back(graph.values()[variable.id].name);
    // Uniform between ± 1 / sqrt(fan-in).
    const int64_t fan_in = names.size() <= 2 ? 2 * 9 : 6 * 36;
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    for (float value : graph.InitialOf(variable).Values(graph.TypeOf(variable)))
      EXPECT_LE(std::abs(value), bound);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"features.0.conv.weight", "features.0.conv.bias",
                                             "head.fc.weight", "head.fc.bias"}));
  const Tensor fc = graph.variables()[2];
  const auto weights = graph.InitialOf(fc).Values(graph.TypeOf(fc));
  const double mean =
      std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
  EXPECT_NEAR(mean, 0, 0.01);
}

TEST(BuilderTest, LayersOfTransformersHaveTheNamesOfPyTorch) {
  Graph graph;
  const Builder net(graph, {.seed = 7});
  const Tensor indices = graph.Input("indices", {program::v1::INT32, {2, 5}});
  Tensor x = net.Embedding("embedding", indices, 100, 8);
  EXPECT_EQ(graph.TypeOf(x).ToString(), "float32[2,5,8]");
  x = net.In("layer").SelfAttention("self_attn", x, 2);
  x = net.In("layer").LayerNorm("norm1", x);
  EXPECT_EQ(graph.TypeOf(net.Linear("fc", x, 3)).ToString(), "float32[2,5,3]");
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  std::vector<std::string> names;
  for (Tensor variable : graph.variables()) {
    names.push_back(
        absl::StrCat(graph.values()[variable.id].name, " ", graph.TypeOf(variable).ToString()));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "embedding.weight float32[100,8]", "layer.self_attn.in_proj_weight float32[24,8]",
                "layer.self_attn.in_proj_bias float32[24]",
                "layer.self_attn.out_proj.weight float32[8,8]",
                "layer.self_attn.out_proj.bias float32[8]", "layer.norm1.weight float32[8]",
                "layer.norm1.bias float32[8]", "fc.weight float32[3,8]", "fc.bias float32[3]"}));
}

TEST(BuilderTest, TheSeedDecides) {
  const auto first_weights = [](uint64_t seed) {
    Graph graph;
    Builder(graph, {.seed = seed}).Linear("fc", graph.Input("x", {FLOAT32, {2, 3}}), 4);
    return graph.InitialOf(graph.variables()[0]).Values(graph.TypeOf(graph.variables()[0]));
  };
  EXPECT_EQ(first_weights(1), first_weights(1));
  EXPECT_NE(first_weights(1), first_weights(2));
}

TEST(BuilderTest, MistakesNameTheLayer) {
  Graph graph;
  const Builder net(graph, {});
  net.In("block").Linear("fc", graph.Input("x", {FLOAT32, {4}}), 5);
  EXPECT_EQ(graph.status().message(),
            "linear 'block.fc' needs [batch, …, features] and has float32[4]");
}

TEST(BuilderTest, WeightsWithoutAShapeAreRefused) {
  const auto refusal = [](const auto& build) {
    Graph graph;
    build(Builder(graph, {}), graph);
    return std::string(graph.status().message());
  };
  for (int64_t outputs : {int64_t{-1}, int64_t{0}, int64_t{1} << 40}) {
    EXPECT_EQ(refusal([&](const Builder& net, Graph& graph) {
                net.Linear("fc", graph.Input("x", {FLOAT32, {2, 3}}), outputs);
              }),
              absl::StrCat("linear 'fc' cannot have weights float32[", outputs, ",3]"));
  }
  const auto convolution = [](int64_t outputs, uint32_t kernel) {
    return [=](const Builder& net, Graph& graph) {
      net.Convolution("conv", graph.Input("x", {FLOAT32, {1, 2, 8, 8}}), outputs,
                      {.kernel = kernel});
    };
  };
  EXPECT_EQ(refusal(convolution(-1, 3)),
            "convolution 'conv' cannot have weights float32[-1,2,3,3]");
  EXPECT_EQ(refusal(convolution(4, 1 << 20)),
            "convolution 'conv' cannot have weights float32[4,2,1048576,1048576]");
  EXPECT_EQ(refusal(convolution(4, 0)), "convolution 'conv' cannot have weights float32[4,2,0,0]");
}

TEST(BuilderTest, FlattensATensorWithoutRows) {
  Graph graph;
  const Tensor x = graph.Slice(graph.Input("x", {FLOAT32, {2, 3, 4}}), {0, 0, 0}, {0, 3, 4});
  EXPECT_EQ(graph.TypeOf(Builder(graph, {}).Flatten(x)).ToString(), "float32[0,12]");
  EXPECT_TRUE(graph.status().ok()) << graph.status();
}

TEST(BuilderTest, OperationsBelongToTheirLayers) {
  Graph graph;
  const Graph::Scope model(graph, "model");
  const Builder block = Builder(graph, {}).In("block");
  Tensor x = graph.Input("x", {program::v1::FLOAT32, {2, 3}});
  {
    const Graph::Scope scope = block.EnterScope();
    x = graph.Relu(block.Linear("fc", x, 4));
  }
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes())
    names.push_back(program::NameOf(graph.origins().at(node.origin)));
  EXPECT_EQ(names, (std::vector<std::string>{"mat_mul 'model.block.fc'", "add 'model.block.fc'",
                                             "relu 'model.block'"}));
  EXPECT_EQ(graph.values()[graph.variables()[0].id].name, "model.block.fc.weight");
}

// A scope that the graph has entered counts, whether before or after the builder was made.
TEST(BuilderTest, LayersBelongToTheScopeThereIs) {
  Graph graph;
  const Builder net(graph, {}), head = net.In("head");
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  {
    const Graph::Scope scope(graph, "block2");
    net.Linear("l2", x, 4);
    net.BatchNorm("norm", x);
    net.In("inner").Parameter("scale", {FLOAT32, {1}}, FirstValues::Filled(1));
    head.Linear("fc", x, 4);  // made for a part of its own
  }
  {
    const Graph::Scope entered = head.EnterScope(), inside(graph, "inside");
    head.Linear("fc", x, 4);
  }
  net.Linear("l2", x, 4);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  std::vector<std::string> names;
  for (Tensor variable : graph.variables()) names.push_back(graph.values()[variable.id].name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "block2.l2.weight", "block2.l2.bias", "block2.norm.weight",
                       "block2.norm.bias", "block2.inner.scale", "head.fc.weight", "head.fc.bias",
                       "head.inside.fc.weight", "head.inside.fc.bias", "l2.weight", "l2.bias"}));
}

}  // namespace
}  // namespace vpod::nn
