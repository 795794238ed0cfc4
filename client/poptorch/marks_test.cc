// Marks of tapes: plans of products, and spans that gradients compute again.
#include "client/poptorch/marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/poptorch/build.h"
#include "client/poptorch/options.h"
#include "client/poptorch/tape_writer.h"

namespace vpod::poptorch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OptimizerOptions Sgd(std::vector<std::string> parameters) {
  return {.groups = {{std::move(parameters), compiler::SgdOptions{}}}};
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// The plans of the products and convolutions of a graph, in program order.
std::vector<program::v1::ProductPlan> PlansOf(const graph::Graph& graph) {
  std::vector<program::v1::ProductPlan> plans;
  for (const graph::Node& node : graph.nodes()) {
    if (node.instruction.has_mat_mul()) plans.push_back(node.instruction.mat_mul().plan());
    if (node.instruction.has_convolution()) plans.push_back(node.instruction.convolution().plan());
  }
  return plans;
}

TEST(BuildGraph, PlansProductsAsMarked) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2}, kHostFloat16);
  const ValueId f = writer.Input("f", {2, 2});
  const auto product = [&](ValueId of, int type) {
    return writer.Op("mm.default", {Use{of}, Use{of}}, {2, 2}, type);
  };
  const ValueId half = product(x, kHostFloat16), single = product(f, kHostFloat32);
  const ValueId other = product(half, kHostFloat16);
  const ValueId relu = writer.Op("relu.default", {Use{other}}, {2, 2}, kHostFloat16);
  for (ValueId value : {half, single, relu}) writer.Result(value);
  writer.tape().available_memory = {{single, 0.25f}, {relu, 0.5f}};
  writer.tape().partials = {{half, kHostFloat16}, {single, kHostFloat16}};
  const auto built = BuildGraph(writer.tape(), {}, {});
  ASSERT_TRUE(built.ok()) << built.status();
  const auto plans = PlansOf(built->graph);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[0].partials(), program::v1::FLOAT16);
  EXPECT_EQ(plans[0].memory_proportion(), 0);
  // Products of float32 have no partial results of another type.
  EXPECT_EQ(plans[1].partials(), program::v1::DATA_TYPE_UNSPECIFIED);
  EXPECT_EQ(plans[1].memory_proportion(), 0.25f);
  EXPECT_EQ(plans[2].memory_proportion(), 0);
}

// y = tanh(sin(cos(x w))), of which sin and cos are a span, and, in another span, its sine.
TapeProgram WithSpans(ModelOptions options) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2});
  const ValueId w = writer.Parameter("w", {2, 2});
  ValueId y = writer.Op("mm.default", {Use{x}, Use{w}}, {2, 2});
  for (const char* name : {"cos.default", "sin.default", "tanh.default", "sin.default"})
    y = writer.Op(name, {Use{y}}, {2, 2});
  const ValueId loss = writer.Op("sum.default", {Use{y}, {}}, {});
  writer.Loss(loss);
  writer.Result(loss);
  writer.tape().recomputed = {{1, 2}, {1, 3}, {4, 5}};
  options.training = true;
  return {writer.tape(), options, Sgd({"w"})};
}

TEST(BuildGraph, KeepsWhatSpansDoNotRecompute) {
  const TapeProgram program = WithSpans({});
  const auto built = BuildGraph(program.tape, program.options, program.optimizer);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_TRUE(built->recomputes);
  std::vector<bool> kept;
  for (const graph::Node& node : built->graph.nodes())
    kept.push_back(built->graph.values()[node.instruction.outputs(0)].is_checkpoint);
  // The product, cos, sin, which the next operator reads, tanh, sin and the sum.
  EXPECT_THAT(kept, ElementsAre(true, false, true, true, true, true));
  const auto compile = CompileOptionsFor(program, *built);
  ASSERT_TRUE(compile.ok()) << compile.status();
  EXPECT_EQ(compile->recomputation, compiler::Recomputation::kAll);
}

TEST(BuildGraph, LetsOptionsRuleOverSpans) {
  const TapeProgram program = WithSpans({.recomputation = compiler::Recomputation::kNone});
  const auto built = BuildGraph(program.tape, program.options, program.optimizer);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_FALSE(built->recomputes);
  const auto compile = CompileOptionsFor(program, *built);
  ASSERT_TRUE(compile.ok()) << compile.status();
  EXPECT_EQ(compile->recomputation, compiler::Recomputation::kNone);
  TapeProgram damaged = program;
  damaged.tape.recomputed = {{3, 70}};
  EXPECT_THAT(MessageOf(BuildGraph(damaged.tape, {}, {}).status()),
              HasSubstr("a recomputed span has a number that does not exist"));
}

}  // namespace
}  // namespace vpod::poptorch
