#include <gtest/gtest.h>

#include "client/models/efficientnet.h"
#include "client/models/parameters.h"
#include "client/models/vgg.h"
#include "client/models/vit.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

Tensor Images(Graph& graph, int64_t edge) {
  return graph.Input("images", {FLOAT32, {2, 3, edge, edge}});
}

// The numbers of parameters are those that torchvision's documentation states.
TEST(EfficientNetTest, HasTorchvisionsNamesAndParameters) {
  for (bool small_images : {false, true}) {
    Graph graph;
    EfficientNetOptions options = EfficientNetB0();
    options.small_images = small_images;
    const Tensor logits =
        EfficientNet(nn::Builder(graph, {.training = true}), Images(graph, 64), options);
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,1000]");
    int64_t count = 0;
    const auto types = Parameters(graph, &count);
    EXPECT_EQ(types.at("features.0.0.weight"), "float32[32,3,3,3]");
    EXPECT_EQ(types.at("features.1.0.block.0.0.weight"), "float32[32,1,3,3]");
    EXPECT_EQ(types.at("features.1.0.block.1.fc1.weight"), "float32[8,32,1,1]");
    EXPECT_EQ(types.at("features.3.1.block.1.0.weight"), "float32[240,1,5,5]");
    EXPECT_EQ(types.at("features.3.1.block.2.fc2.bias"), "float32[240]");
    EXPECT_EQ(types.at("features.7.0.block.3.1.weight"), "float32[320]");
    EXPECT_EQ(types.at("features.8.0.weight"), "float32[1280,320,1,1]");
    EXPECT_EQ(types.at("classifier.1.weight"), "float32[1000,1280]");
    EXPECT_EQ(count, 5288548);
  }
}

TEST(EfficientNetTest, B4IsWiderAndDeeper) {
  Graph graph;
  EfficientNet(nn::Builder(graph, {}), Images(graph, 64), EfficientNetB4());
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("features.6.7.block.0.0.weight"), "float32[1632,272,1,1]");
  EXPECT_EQ(count, 19341616);
}

TEST(EfficientNetTest, GroupsAndStages) {
  Graph graph;
  EfficientNetOptions options = EfficientNetB4Group16();
  options.stages = {"features.2.2", "features.6.0"};
  EfficientNet(nn::Builder(graph, {}), Images(graph, 64), options);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("features.6.7.block.0.0.weight"), "float32[1088,272,1,1]");
  EXPECT_EQ(types.at("features.6.7.block.1.0.weight"), "float32[1088,16,5,5]");
  for (Tensor variable : graph.variables()) {
    const graph::Value& value = graph.values()[variable.id];
    const bool before = value.name < "features.2.2", last = value.name >= "features.6";
    EXPECT_EQ(value.ipu, last || value.name[0] == 'c' ? 2u : before ? 0u : 1u) << value.name;
  }
  options.stages = {"features.2.9"};
  EfficientNet(nn::Builder(graph, {}), graph.Input("more", {FLOAT32, {1, 3, 64, 64}}), options);
  EXPECT_FALSE(graph.status().ok());
}

int RandomOperations(const EfficientNetOptions& options, bool training) {
  Graph graph;
  EfficientNet(nn::Builder(graph, {.training = training}), Images(graph, 32), options);
  EXPECT_TRUE(graph.status().ok()) << graph.status();
  int count = 0;
  for (const graph::Node& node : graph.nodes()) count += node.instruction.has_random();
  return count;
}

// Nine of the 16 blocks have a residual to leave out; dropout makes one more draw.
TEST(EfficientNetTest, StochasticDepthBelongsToTraining) {
  EfficientNetOptions options = EfficientNetB0();
  EXPECT_EQ(RandomOperations(options, true), 10);
  EXPECT_EQ(RandomOperations(options, false), 0);
  options.stochastic_depth = 0;
  EXPECT_EQ(RandomOperations(options, true), 1);
}

TEST(EfficientNetTest, FactorsAreAboveZero) {
  Graph graph;
  EfficientNet(nn::Builder(graph, {}), Images(graph, 32), {.depth = 0});
  EXPECT_EQ(graph.status().message(),
            "efficientnet has the factors 1 and 0 of width and depth, must be above 0");
}

TEST(VggTest, HasTorchvisionsNamesAndParameters) {
  Graph graph;
  const Tensor logits = Vgg(nn::Builder(graph, {.training = true}), Images(graph, 64), Vgg16());
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,1000]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("features.0.weight"), "float32[64,3,3,3]");
  EXPECT_EQ(types.at("features.28.bias"), "float32[512]");
  EXPECT_EQ(types.at("classifier.0.weight"), "float32[4096,25088]");
  EXPECT_EQ(types.at("classifier.6.weight"), "float32[1000,4096]");
  EXPECT_EQ(count, 138357544);
  // Biases are zero at first.
  for (Tensor variable : graph.variables()) {
    if (graph.values()[variable.id].name == "features.0.bias") {
      EXPECT_EQ(graph.InitialOf(variable).Values(graph.TypeOf(variable)), std::vector<float>(64));
    }
  }
}

TEST(VisionTransformerTest, HasTorchvisionsNamesAndParameters) {
  Graph graph;
  const Tensor logits =
      VisionTransformer(nn::Builder(graph, {.training = true}), Images(graph, 224), VitB16());
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,1000]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("class_token"), "float32[1,1,768]");
  EXPECT_EQ(types.at("conv_proj.weight"), "float32[768,3,16,16]");
  EXPECT_EQ(types.at("encoder.pos_embedding"), "float32[1,197,768]");
  const std::string layer = "encoder.layers.encoder_layer_11.";
  EXPECT_EQ(types.at(layer + "ln_1.weight"), "float32[768]");
  EXPECT_EQ(types.at(layer + "self_attention.in_proj_weight"), "float32[2304,768]");
  EXPECT_EQ(types.at(layer + "self_attention.out_proj.bias"), "float32[768]");
  EXPECT_EQ(types.at(layer + "mlp.0.weight"), "float32[3072,768]");
  EXPECT_EQ(types.at(layer + "mlp.3.weight"), "float32[768,3072]");
  EXPECT_EQ(types.at("encoder.ln.bias"), "float32[768]");
  EXPECT_EQ(types.at("heads.head.weight"), "float32[1000,768]");
  EXPECT_EQ(count, 86567656);
}

TEST(VisionTransformerTest, PatchesDivideTheImages) {
  Graph graph;
  VisionTransformer(nn::Builder(graph, {}), Images(graph, 40), VitB16());
  EXPECT_EQ(graph.status().message(),
            "the vision transformer needs images [batch, channels, height, width] that patches "
            "divide, and has float32[2,3,40,40] and patches of 16 × 16");
}

}  // namespace
}  // namespace vpod::models
