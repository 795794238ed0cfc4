// Checks what the compiler fuses, and that fused programs give the bits of those that are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "client/compiler/compiler.h"
#include "client/nn/builder.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/program/op.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::DataType;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

// Two residual blocks and two other activations between them; the second with a convolution in its
// shortcut, dropout and a linear layer.
Tensor Network(const nn::Builder& net, Tensor images) {
  Graph& graph = net.graph();
  Tensor x = graph.Relu(
      net.BatchNorm("bn0", net.Convolution("conv0", images, 8, {.kernel = 3, .padding = 1})));
  Tensor y = net.BatchNorm("bn1", net.Convolution("conv1", x, 8, {.kernel = 3, .padding = 1}));
  x = graph.Relu(graph.Add(y, x));
  x = graph.Relu6(net.BatchNorm("bn4", net.Convolution("conv4", x, 8, {})));
  x = graph.Silu(net.BatchNorm("bn5", net.Convolution("conv5", x, 8, {})));
  y = net.BatchNorm("bn2",
                    net.Convolution("conv2", x, 12, {.kernel = 3, .stride = 2, .padding = 1}));
  x = graph.Relu(
      graph.Add(y, net.BatchNorm("bn3", net.Convolution("conv3", x, 12, {.stride = 2}))));
  x = graph.Dropout(net.GlobalAveragePool(x), 0.25f);
  return net.Linear("fc", graph.Unary(program::v1::TANH, x), 5);
}

struct Trained {
  std::map<std::string, std::vector<float>> variables;
  std::vector<float> losses;
  std::map<std::string, int> ops;  // instructions of each kind
  int activations = 0;             // in batch norms and their gradients
  int recomputed = 0;              // whose input the gradient finds again
};

Trained Train(DataType type, bool fusion) {
  Graph graph;
  const nn::Builder net(graph, {.seed = 3, .training = true});
  const Tensor images = graph.Input("images", {FLOAT32, {4, 3, 8, 8}});
  const Tensor labels = graph.Input("labels", {INT32, {4}});
  const Tensor logits = Network(net, graph.Cast(images, type));
  const Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(graph.Cast(logits, FLOAT32), labels));
  graph.Output("loss", loss);
  compiler::ProgramSpec spec{
      .name = "train", .accumulation = 2, .loss = loss, .optimizer = compiler::SgdOptions{}};
  spec.optimizer = compiler::SgdOptions{.learning_rate = 0.05f, .momentum = 0.9f};
  spec.loss_scale = 64;
  const auto compiled = compiler::Compile(graph, {.fusion = fusion, .programs = {spec}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  auto session = Session::Create(*CreateIpuModel({}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();

  Trained result;
  for (const auto& function : compiled->executable->proto().ipus(0).functions()) {
    for (const auto& instruction : function.instructions()) {
      ++result.ops[program::OpName(instruction.attributes_case())];
      const auto& gradient = instruction.batch_norm_gradient();
      result.activations += instruction.batch_norm().activation() != 0 ? 1 : 0;
      result.activations += gradient.activation() != 0 ? 1 : 0;
      result.recomputed += gradient.recompute() ? 1 : 0;
    }
  }
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int step = 0; step < 3; ++step) {
    const auto pixels = *(*session)->Stream<float>("images", 0);
    const auto labels_of_step = *(*session)->Stream<int32_t>("labels", 0);
    const auto losses = *(*session)->Stream<float>("loss", 0);
    for (float& pixel : pixels) pixel = normal(random);
    for (int32_t& label : labels_of_step) label = static_cast<int32_t>(random() % 5);
    EXPECT_TRUE((*session)->Run("train").ok());
    result.losses.insert(result.losses.end(), losses.begin(), losses.end());
  }
  for (const auto& variable : compiled->executable->proto().variables())
    result.variables[variable.name()] = *(*session)->ReadFloats(variable.name());
  return result;
}

class FusionTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, FusionTest, testing::Values(FLOAT32, FLOAT16),
                         [](const auto& info) { return DataType_Name(info.param); });

TEST_P(FusionTest, ChangesNoBit) {
  const Trained fused = Train(GetParam(), true), single = Train(GetParam(), false);
  EXPECT_EQ(fused.losses, single.losses);
  EXPECT_THAT(fused.variables, testing::ContainerEq(single.variables));
  // The activations and their gradients are part of the batch norms, and so are the sums with the
  // shortcuts. Only dropout and the running moments need
  // maps.
  EXPECT_EQ(single.ops.at("batch_norm"), 6);
  EXPECT_EQ(single.ops.count("map"), 0u);
  EXPECT_EQ(fused.ops.at("batch_norm"), 6);
  EXPECT_EQ(fused.ops.at("batch_norm_gradient"), 6);
  EXPECT_EQ(fused.activations, 5 + 5);
  EXPECT_EQ(fused.recomputed, 3);  // bn0, bn4, bn5: nothing is added to their outputs
  EXPECT_GT(fused.ops.at("map"), 0);
  const auto number = [](const Trained& trained) {
    int ops = 0;
    for (const char* name : {"unary", "binary", "select", "cast"}) {
      const auto it = trained.ops.find(name);
      ops += it == trained.ops.end() ? 0 : it->second;
    }
    return ops;
  };
  EXPECT_LT(number(fused) * 2, number(single));
}

}  // namespace
}  // namespace vpod::session
