// Each convolution of the models has a fast implementation, in all passes: never "ref", nor "gemm"
// for windows of 3 × 3 and more and for depthwise ones, nor plain loops, which have no name.
#include <gtest/gtest.h>

#include <string>

#include "client/compiler/compiler.h"
#include "client/models/efficientnet.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/resnet.h"
#include "device/engine/kernels/kernel.h"

namespace vpod {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::Convolution;

struct Model {
  const char* name;
  graph::Dims images;
  Tensor (*build)(const nn::Builder& net, Tensor images);
};

const Model kModels[] = {
    {"Mnist", {16, 1, 28, 28}, models::Mnist},
    {"ResNet18",
     {16, 3, 32, 32},
     [](const nn::Builder& net, Tensor images) {
       models::ResNetOptions options = models::ResNet18();
       options.small_images = true;
       return models::ResNet(net, images, options);
     }},
    {"ResNet18Stem7",
     {16, 3, 32, 32},
     [](const nn::Builder& net, Tensor images) {
       return models::ResNet(net, images, models::ResNet18());
     }},
    {"ResNet50",
     {4, 3, 224, 224},
     [](const nn::Builder& net, Tensor images) {
       return models::ResNet(net, images, models::ResNet50());
     }},
    {"MobileNetV2",
     {4, 3, 224, 224},
     [](const nn::Builder& net, Tensor images) { return models::MobileNetV2(net, images, {}); }},
    {"EfficientNetB0",
     {2, 3, 224, 224},
     [](const nn::Builder& net, Tensor images) {
       return models::EfficientNet(net, images, models::EfficientNetB0());
     }},
    {"ResNext101",
     {1, 3, 224, 224},
     [](const nn::Builder& net, Tensor images) {
       return models::ResNet(net, images, models::ResNext101_32x8d());
     }},
};

class ImplementationsTest
    : public testing::TestWithParam<std::tuple<Model, program::v1::DataType>> {};

INSTANTIATE_TEST_SUITE_P(Models, ImplementationsTest,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(program::v1::FLOAT32,
                                                          program::v1::FLOAT16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == program::v1::FLOAT16 ? "Half"
                                                                                   : "Float");
                         });

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_P(ImplementationsTest, AreFast) {
  const auto& [model, type] = GetParam();
  Graph graph;
  const Tensor images = graph.Input("images", {type, model.images}),
               labels = graph.Input("labels", {program::v1::INT32, {model.images[0]}});
  const Tensor logits = model.build(nn::Builder(graph, {.training = true}), images);
  const Tensor loss =
      graph.Mean(graph.SoftmaxCrossEntropy(graph.Cast(logits, program::v1::FLOAT32), labels));
  graph.Output("loss", loss);
  const auto compiled = compiler::Compile(
      graph, {.programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const program::v1::Ipu& ipu = compiled->executable->proto().ipus(0);
  int convolutions = 0;
  for (const program::v1::Function& function : ipu.functions()) {
    for (const program::v1::Instruction& step : function.instructions()) {
      if (!step.has_convolution()) continue;
      ++convolutions;
      const Convolution& op = step.convolution();
      const auto kernel = engine::PrepareKernel(ipu, step);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_FALSE(kernel->implementations.empty()) << step.ShortDebugString();
      int taps = 1;
      for (uint32_t size : op.window().kernel()) taps *= static_cast<int>(size);
      const auto& weights = ipu.tensors(static_cast<int>(
          op.pass() == Convolution::WEIGHT_GRADIENT ? step.outputs(0) : step.inputs(1)));
      const bool depthwise = op.groups() > 1 && weights.dims(1) == 1;
      for (const std::string& name : kernel->implementations) {
        EXPECT_FALSE(Contains(name, "ref")) << name << ": " << step.ShortDebugString();
        EXPECT_FALSE((taps > 1 || depthwise) && Contains(name, "gemm"))
            << name << ": " << step.ShortDebugString();
      }
    }
  }
  EXPECT_GT(convolutions, 0);
}

}  // namespace
}  // namespace vpod
