#include <gtest/gtest.h>

#include "client/compiler/compiler.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/parameters.h"
#include "client/models/resnet.h"
#include "client/models/transformer.h"
#include "device/model/cost.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

int64_t CountOf(const ResNetOptions& options) {
  Graph graph;
  const Tensor images = graph.Input("images", {FLOAT32, {1, 3, 64, 64}});
  ResNet(nn::Builder(graph, {}), images, options);
  EXPECT_TRUE(graph.status().ok()) << graph.status();
  int64_t count = 0;
  Parameters(graph, &count);
  return count;
}

// The numbers that torchvision's documentation states.
TEST(ResNetTest, HasAsManyParametersAsTorchvisions) {
  EXPECT_EQ(CountOf(ResNet18()), 11689512);
  EXPECT_EQ(CountOf(ResNet34()), 21797672);
  EXPECT_EQ(CountOf(ResNet50()), 25557032);
  EXPECT_EQ(CountOf(ResNet101()), 44549160);
  EXPECT_EQ(CountOf(ResNext101_32x8d()), 88791336);
}

TEST(MobileNetTest, HasTorchvisionsNamesAndParameters) {
  for (bool small_images : {false, true}) {
    Graph graph;
    const Tensor images = graph.Input("images", {FLOAT32, {2, 3, 64, 64}});
    const Tensor logits =
        MobileNetV2(nn::Builder(graph, {.training = true}), images, {.small_images = small_images});
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,1000]");
    int64_t count = 0;
    const auto types = Parameters(graph, &count);
    EXPECT_EQ(types.at("features.0.0.weight"), "float32[32,3,3,3]");
    EXPECT_EQ(types.at("features.1.conv.1.weight"), "float32[16,32,1,1]");
    EXPECT_EQ(types.at("features.2.conv.1.0.weight"), "float32[96,1,3,3]");
    EXPECT_EQ(types.at("features.17.conv.3.bias"), "float32[320]");
    EXPECT_EQ(types.at("features.18.1.weight"), "float32[1280]");
    EXPECT_EQ(types.at("classifier.1.weight"), "float32[1000,1280]");
    EXPECT_EQ(count, 3504872);
  }
}

TEST(MobileNetTest, HasTorchvisionsParametersAtHalfTheWidth) {
  Graph graph;
  const Tensor images = graph.Input("images", {FLOAT32, {2, 3, 64, 64}});
  MobileNetV2(nn::Builder(graph, {.training = true}), images, {.width = 0.5});
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  int64_t count = 0;
  Parameters(graph, &count);
  EXPECT_EQ(count, 1968680);
}

TEST(MobileNetTest, WidthIsAboveZero) {
  Graph graph;
  MobileNetV2(nn::Builder(graph, {}), graph.Input("images", {FLOAT32, {2, 3, 64, 64}}),
              {.width = 0});
  EXPECT_EQ(graph.status().message(), "mobilenet has the factor 0 of width, must be above 0");
}

// PyTorch's count for a width of 64, four heads and two layers; either order of the norms.
TEST(TransformerTest, HasAsManyParametersAsPyTorchs) {
  for (bool norm_first : {false, true}) {
    Graph graph;
    const Tensor tokens = graph.Input("tokens", {FLOAT32, {2, 7, 64}});
    const Tensor y = TransformerEncoder(nn::Builder(graph, {}), tokens, {.norm_first = norm_first});
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    EXPECT_EQ(graph.TypeOf(y).ToString(), "float32[2,7,64]");
    int64_t count = 0;
    const auto types = Parameters(graph, &count);
    EXPECT_EQ(types.at("layers.1.linear1.weight"), "float32[256,64]");
    EXPECT_EQ(count, 2 * (192 * 64 + 192 + 64 * 64 + 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64));
  }
}

TEST(TransformerTest, OptionsThatDoNotFitAreRefused) {
  for (bool norm_first : {false, true}) {
    const auto refusal = [&](graph::Dims tokens, int64_t heads) {
      Graph graph;
      TransformerEncoder(nn::Builder(graph, {}), graph.Input("tokens", {FLOAT32, tokens}),
                         {.heads = heads, .norm_first = norm_first});
      return std::string(graph.status().message());
    };
    EXPECT_EQ(refusal({2, 7, 64}, 3),
              "self_attention 'layers.0.self_attn' needs [batch, tokens, width] and heads that "
              "divide the width, and has float32[2,7,64] and 3 heads");
    EXPECT_NE(refusal({7, 64}, 4), "");
    EXPECT_NE(refusal({}, 4), "");
  }
}

TEST(ResNetTest, HasTorchvisionsNamesAndShapes) {
  Graph graph;
  const Tensor images = graph.Input("images", {FLOAT32, {2, 3, 224, 224}});
  const Tensor logits = ResNet(nn::Builder(graph, {.training = true}), images, ResNet50());
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[2,1000]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("conv1.weight"), "float32[64,3,7,7]");
  EXPECT_EQ(types.at("bn1.bias"), "float32[64]");
  EXPECT_EQ(types.at("layer1.0.downsample.0.weight"), "float32[256,64,1,1]");
  EXPECT_EQ(types.at("layer4.2.conv2.weight"), "float32[512,512,3,3]");
  EXPECT_EQ(types.at("fc.weight"), "float32[1000,2048]");
  EXPECT_FALSE(types.contains("layer1.1.downsample.0.weight"));
  EXPECT_EQ(graph.values()[graph.buffers()[0].id].name, "bn1.running_mean");
  EXPECT_EQ(graph.buffers().size(), 2u * 53);
}

// Training keeps images with the channels innermost from the first convolution to the pooling and
// back: only what comes from the host is copied, and what the pooling passes back is written out.
TEST(ResNetTest, ImagesAreNotCopiedBetweenLayers) {
  Graph graph;
  const Tensor images = graph.Input("images", {FLOAT32, {2, 3, 32, 32}});
  const Tensor labels = graph.Input("labels", {program::v1::INT32, {2}});
  ResNetOptions options = ResNet18();
  options.classes = 10;
  options.small_images = true;
  const Tensor logits = ResNet(nn::Builder(graph, {.training = true}), images, options);
  const Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(logits, labels));
  graph.Output("loss", loss);
  const auto compiled = compiler::Compile(
      graph, {.programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto& ipu = compiled->executable->proto().ipus(0);
  int copies = 0, convolutions = 0;
  for (const auto& function : ipu.functions()) {
    for (const auto& instruction : function.instructions()) {
      convolutions += instruction.has_convolution();
      copies += instruction.has_copy() && ipu.tensors(instruction.inputs(0)).dims_size() == 4;
    }
  }
  EXPECT_EQ(convolutions, 20 + 19 + 20);  // no gradient of the images
  EXPECT_EQ(copies, 2);
}

TEST(MnistTest, HasTheTutorialsShapes) {
  Graph graph;
  const Tensor images = graph.Input("images", {FLOAT32, {8, 1, 28, 28}});
  const Tensor logits = Mnist(nn::Builder(graph, {}), images);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  EXPECT_EQ(graph.TypeOf(logits).ToString(), "float32[8,10]");
  int64_t count = 0;
  const auto types = Parameters(graph, &count);
  EXPECT_EQ(types.at("layer1.conv.weight"), "float32[10,1,5,5]");
  EXPECT_EQ(types.at("layer3.weight"), "float32[256,320]");
}

}  // namespace
}  // namespace vpod::models
