// In which order values lie, as the executable says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/compiler/compiler.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using program::Dims;
using testing::ElementsAre;
using v1::FLOAT32;

const Dims kFilters = {6, 3, 2, 2};
const std::vector<float> kWeights(72, 0.5f);

v1::SlidingWindow Window() {
  v1::SlidingWindow window;
  for (int axis = 0; axis < 2; ++axis) {
    window.add_kernel(2);
    window.add_stride(1);
    window.add_dilation(1);
    window.add_pad_before(0);
    window.add_pad_after(0);
  }
  return window;
}

// A convolution on IPU 0 and a mean on another.
struct Model {
  Graph graph;
  Tensor weights, loss;

  explicit Model(uint32_t second = 0) {
    const Tensor x = graph.Input("x", {FLOAT32, {4, 3, 5, 5}});
    weights = graph.Variable("w", {FLOAT32, kFilters}, kWeights);
    const Tensor y = graph.Convolution(graph.Relu(x), weights, Window());
    graph.SetIpu(second);
    loss = graph.Mean(graph.Relu(y));
  }
};

v1::Executable TextOf(const Graph& graph, const CompileOptions& options) {
  const auto compiled = Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? compiled->executable->proto() : v1::Executable();
}

Dims StridesOf(const v1::Executable& executable, const std::string& name) {
  for (const v1::Variable& variable : executable.variables()) {
    if (variable.name() == name) {
      return program::StridesOf(executable.ipus(static_cast<int>(variable.ipu()))
                                    .tensors(static_cast<int>(variable.tensor())));
    }
  }
  ADD_FAILURE() << "there is no variable " << name;
  return {};
}

int Copies(const v1::Executable& executable) {
  int copies = 0;
  for (const v1::Ipu& ipu : executable.ipus()) {
    for (const v1::Function& function : ipu.functions()) {
      for (const v1::Instruction& instruction : function.instructions())
        copies += instruction.has_copy() ? 1 : 0;
    }
  }
  return copies;
}

TEST(PlacementTest, WeightsOfConvolutionsAndTheirMomentumLieWithTheOutputsInnermost) {
  const Model model;
  for (uint32_t accumulation : {1, 3}) {
    const v1::Executable executable =
        TextOf(model.graph, {.programs = {{.name = "train",
                                           .accumulation = accumulation,
                                           .loss = model.loss,
                                           .optimizer = SgdOptions{.momentum = 0.9f}}}});
    EXPECT_EQ(StridesOf(executable, "w"), program::OutputsLastStrides(kFilters));
    EXPECT_EQ(StridesOf(executable, "Accl___w"), program::OutputsLastStrides(kFilters));
    // The image arrives row-major. Weights and their gradients are used as they lie.
    EXPECT_EQ(Copies(executable), 1);
  }
}

TEST(PlacementTest, SoDoWeightsThatAreCast) {
  Graph graph;
  const Tensor x = graph.Input("x", {v1::FLOAT16, {4, 3, 5, 5}});
  const Tensor weights = graph.Variable("w", {FLOAT32, kFilters}, kWeights);
  const Tensor y = graph.Convolution(x, graph.Cast(weights, v1::FLOAT16), Window());
  const Tensor loss = graph.Mean(graph.Cast(y, FLOAT32));
  const v1::Executable executable =
      TextOf(graph, {.programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{}}}});
  EXPECT_EQ(StridesOf(executable, "w"), program::OutputsLastStrides(kFilters));
  EXPECT_EQ(Copies(executable), 1);
}

// Their elements are rounded by their numbers, which follow the order.
TEST(PlacementTest, Float16WeightsThatAreRoundedStochasticallyStayRowMajor) {
  Graph graph;
  const Tensor x = graph.Input("x", {v1::FLOAT16, {4, 3, 5, 5}});
  const Tensor weights = graph.Variable("w", {v1::FLOAT16, kFilters}, kWeights);
  const Tensor loss = graph.Mean(graph.Convolution(x, weights, Window()));
  const v1::Executable executable =
      TextOf(graph, {.rounding = Rounding::kStochastic,
                     .programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{}}}});
  EXPECT_EQ(StridesOf(executable, "w"), program::RowMajorStrides(kFilters));
}

TEST(PlacementTest, ProgramsPlaceAVariableAlike) {
  Model model;
  model.graph.Output("weights", model.weights);
  // The first program reads them for its output alone.
  const v1::Executable executable =
      TextOf(model.graph,
             {.programs = {{.name = "infer"},
                           {.name = "train", .loss = model.loss, .optimizer = SgdOptions{}}}});
  EXPECT_EQ(StridesOf(executable, "w"), program::OutputsLastStrides(kFilters));
}

TEST(PlacementTest, BuffersStayRowMajor) {
  Model model;
  const Tensor average = model.graph.Buffer("average", {FLOAT32, kFilters}, kWeights);
  const Tensor x = model.graph.Input("other", {FLOAT32, {4, 3, 5, 5}});
  model.graph.Output("y", model.graph.Convolution(x, average, Window()));
  model.graph.Assign(average, model.graph.Add(average, model.weights));
  const v1::Executable executable =
      TextOf(model.graph,
             {.programs = {{.name = "train", .loss = model.loss, .optimizer = SgdOptions{}}}});
  EXPECT_EQ(StridesOf(executable, "average"), program::RowMajorStrides(kFilters));
}

TEST(PlacementTest, ImagesMoveBetweenIpusAsTheyLie) {
  const Model alone, apart(1);
  const auto options = [](const Model& model, uint32_t ipus) {
    return CompileOptions{
        .ipus_per_replica = ipus,
        .programs = {{.name = "train", .loss = model.loss, .optimizer = SgdOptions{}}}};
  };
  const v1::Executable executable = TextOf(apart.graph, options(apart, 2));
  EXPECT_EQ(executable.exchanges_size(), 2);  // forward and back
  EXPECT_EQ(Copies(executable), Copies(TextOf(alone.graph, options(alone, 1))));
}

}  // namespace
}  // namespace vpod::compiler
