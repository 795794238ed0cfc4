// The names of compiled instructions in messages.
#include "device/program/origins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/nn/builder.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::Contains;
using testing::ElementsAre;

// Names of all instructions of IPU 0, the control between them left out.
std::vector<std::string> NamesOf(const program::Executable& executable) {
  std::vector<std::string> names;
  const auto& functions = executable.proto().ipus(0).functions();
  for (int f = 0; f < functions.size(); ++f) {
    for (int i = 0; i < functions[f].instructions_size(); ++i) {
      const auto& instruction = functions[f].instructions(i);
      if (instruction.has_repeat() || instruction.has_if_()) continue;
      names.push_back(program::NameOf(
          instruction, executable.OriginOf(0, static_cast<size_t>(f), static_cast<size_t>(i))));
    }
  }
  return names;
}

std::shared_ptr<const program::Executable> Compiled(const Graph& graph, const ProgramSpec& spec,
                                                    bool fusion = true) {
  const auto compiled = Compile(graph, {.fusion = fusion, .programs = {spec}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? compiled->executable : nullptr;
}

struct Model {
  Graph graph;
  Tensor loss;
};

Model Classifier(const std::string& scope, program::v1::DataType type = FLOAT32) {
  Model model;
  Graph& graph = model.graph;
  const Tensor x = graph.Cast(graph.Input("x", {FLOAT32, {2, 3}}), type);
  const Tensor labels = graph.Input("labels", {INT32, {2}});
  const Tensor w = graph.Variable("w", {type, {3, 4}}, std::vector<float>(12, 1));
  Tensor logits;
  {
    const Graph::Scope part(graph, scope);
    logits = graph.MatMul(x, w);
  }
  const Graph::Scope part(graph, "loss");
  model.loss = graph.Mean(graph.SoftmaxCrossEntropy(logits, labels));
  graph.Output("mean", model.loss);
  return model;
}

TEST(OriginsTest, EveryInstructionHasAName) {
  const Model model = Classifier("head");
  EXPECT_THAT(
      NamesOf(*Compiled(
          model.graph,
          {.name = "train", .accumulation = 2, .loss = model.loss, .optimizer = SgdOptions{}})),
      ElementsAre("stream_in 'x'", "stream_in 'labels'", "mat_mul 'head'",
                  "softmax_cross_entropy 'loss'", "mean 'loss'", "mean 'loss' (backward)",
                  // The gradients of the losses, repeated, are written out for the next.
                  "softmax_cross_entropy 'loss' (backward)",
                  "softmax_cross_entropy 'loss' (backward)", "mat_mul 'head' (backward)",
                  "accumulate 'w'", "stream_out 'mean'",
                  // Constants, then all but the loop.
                  "mean 'loss' (backward)", "mean 'loss' (backward)", "fill 'w'", "fill 'w'",
                  "all_reduce", "sgd 'w'"));
}

TEST(OriginsTest, KnowPhaseAndStage) {
  Graph graph;
  graph.SetStage(1);
  const Tensor w = graph.Variable("w", {FLOAT32, {}}, {2});
  graph.SetStage(2);
  const Tensor y = graph.Multiply(w, w);
  graph.SetStage(0);
  graph.Output("y", y);
  const auto executable =
      Compiled(graph, {.name = "train", .loss = y, .optimizer = SgdOptions{}}, /*fusion=*/false);
  std::map<std::string, std::pair<int, uint32_t>> found;
  program::v1::Origins origins;
  ASSERT_TRUE(origins.ParseFromString(executable->OriginBytes()));
  for (const program::v1::Origin& origin : origins.origins())
    found[program::NameOf(origin)] = {origin.phase(), origin.stage()};
  using program::v1::Origin;
  EXPECT_EQ(found.at("multiply"), std::pair(int{Origin::FORWARD}, 2u));
  EXPECT_EQ(found.at("multiply (backward)"), std::pair(int{Origin::BACKWARD}, 2u));
  EXPECT_EQ(found.at("add 'w' (backward)"), std::pair(int{Origin::BACKWARD}, 1u));
  EXPECT_EQ(found.at("sgd 'w'"), std::pair(int{Origin::UPDATE}, 1u));
}

// Gradients by a reshape and by the value itself are added in the stage of the value.
TEST(OriginsTest, GradientsOfReshapesBelongToTheBackwardPass) {
  Graph graph;
  graph.SetStage(1);
  const Graph::Scope scope(graph, "layer");
  const Tensor w = graph.Variable("w", {FLOAT32, {4}}, std::vector<float>(4, 2));
  const Tensor y = graph.Unary(program::v1::TANH, w);
  graph.SetStage(2);
  const Tensor z = graph.Reshape(
      graph.Multiply(graph.Reshape(y, {2, 2}), graph.Constant({FLOAT32, {2, 2}}, 3)), {4});
  const Tensor loss = graph.Sum(graph.Multiply(z, y));
  graph.SetStage(3);
  graph.Output("loss", loss);
  const auto executable =
      Compiled(graph, {.name = "train", .loss = loss, .optimizer = SgdOptions{}}, /*fusion=*/false);
  program::v1::Origins origins;
  ASSERT_TRUE(origins.ParseFromString(executable->OriginBytes()));
  for (const program::v1::Origin& origin : origins.origins()) {
    EXPECT_FALSE(origin.phase() == program::v1::Origin::FORWARD && origin.op() == "add")
        << origin.DebugString();
  }
  EXPECT_THAT(NamesOf(*executable), Contains("tanh 'layer' (backward)"));
}

TEST(OriginsTest, NamesAreOutsideTheHash) {
  const Model model = Classifier("head"), renamed = Classifier("a/different name");
  const ProgramSpec spec{.name = "train", .loss = model.loss, .optimizer = SgdOptions{}};
  const auto first = Compiled(model.graph, spec), second = Compiled(renamed.graph, spec);
  EXPECT_EQ(first->Bytes(), second->Bytes());
  EXPECT_EQ(first->hash(), second->hash());
  EXPECT_THAT(NamesOf(*first), Contains("mat_mul 'head'"));
  EXPECT_THAT(NamesOf(*second), Contains("mat_mul 'a/different name'"));
}

TEST(OriginsTest, FusedOperationsKeepTheNameThatSaysMost) {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  Tensor x = graph.Input("x", {FLOAT32, {2, 3, 4, 4}});
  x = net.BatchNorm("bn1", x);
  {
    const Graph::Scope scope(graph, "block");
    x = graph.Relu(x);
    x = graph.Unary(program::v1::TANH, graph.Unary(program::v1::SQUARE, x));
  }
  graph.Output("y", x);
  const ProgramSpec spec{.name = "main"};
  const std::vector<std::string> fused = NamesOf(*Compiled(graph, spec));
  EXPECT_THAT(fused, Contains("batch_norm 'bn1'"));
  EXPECT_THAT(fused, Contains("tanh 'block' (map)"));
  const std::vector<std::string> single = NamesOf(*Compiled(graph, spec, /*fusion=*/false));
  EXPECT_THAT(single, Contains("relu 'block'"));
  EXPECT_THAT(single, Contains("tanh 'block'"));
}

TEST(OriginsTest, TheOptimiserIsNamedAfterItsVariables) {
  const Model model = Classifier("head", FLOAT16);
  const std::vector<std::string> names =
      NamesOf(*Compiled(model.graph, {.name = "train",
                                      .loss = model.loss,
                                      .optimizer = AdamOptions{},
                                      .loss_scale = 8.0f,
                                      .automatic_loss_scale = AutomaticLossScale{}}));
  EXPECT_THAT(names, Contains("adam 'w'"));
  EXPECT_THAT(names, Contains("cast 'w'"));
  EXPECT_THAT(names, Contains("add 'optimizer/step/ipu0'"));
  EXPECT_THAT(names, Contains("all_finite 'optimizer/lossScale'"));
  EXPECT_THAT(names, Contains("update_loss_scale 'optimizer/lossScale'"));
}

}  // namespace
}  // namespace vpod::compiler
