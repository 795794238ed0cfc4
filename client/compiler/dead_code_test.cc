#include "client/compiler/dead_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/compiler/lowering.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using testing::ElementsAre;
using testing::IsEmpty;
using v1::FLOAT32;
using v1::INT32;

class DeadCodeTest : public testing::Test {
 protected:
  // The program of the graph without dead code.
  GraphProgram Live(GraphProgram program = {}) const {
    program.graph = graph_;
    RemoveDeadCode(program);
    return program;
  }
  // The values that its nodes make.
  std::vector<uint32_t> Made(GraphProgram program = {}) const {
    const GraphProgram live = Live(std::move(program));
    std::vector<uint32_t> made;
    for (const graph::Node& node : live.graph.nodes())
      made.insert(made.end(), node.instruction.outputs().begin(), node.instruction.outputs().end());
    return made;
  }

  Graph graph_;
  const Tensor x_ = graph_.Input("x", {FLOAT32, {4}}), y_ = graph_.Input("y", {FLOAT32, {4}});
};

TEST_F(DeadCodeTest, WhatReachesNoOutputGoesWithItsInput) {
  const Tensor a = graph_.Relu(x_);
  graph_.Relu(graph_.Add(a, y_));
  graph_.Output("a", a);
  EXPECT_THAT(Made(), ElementsAre(a.id));
  EXPECT_THAT(ResultsOf({.graph = graph_}), ElementsAre(a.id));
  std::vector<std::string> streams;
  for (const LoweredStream& stream : Lower(Live()).streams) streams.push_back(stream.name);
  EXPECT_THAT(streams, ElementsAre("x", "a"));
}

TEST_F(DeadCodeTest, AReshapeKeepsWhatItShares) {
  const Tensor a = graph_.Relu(x_), square = graph_.Reshape(a, {2, 2});
  graph_.Output("square", square);
  EXPECT_THAT(Made(), ElementsAre(a.id));
  EXPECT_THAT(ResultsOf({.graph = graph_}), ElementsAre(a.id));
}

TEST_F(DeadCodeTest, GradientsLiveLikeOutputs) {
  const Tensor a = graph_.Relu(x_);
  EXPECT_THAT(Made(), IsEmpty());
  EXPECT_THAT(Made({.gradients = {.of_variables = {{a}}}}), ElementsAre(a.id));
}

TEST_F(DeadCodeTest, AssignmentsCountInTraining) {
  const Tensor buffer = graph_.Buffer("mean", {FLOAT32, {4}}, std::vector<float>(4));
  const Tensor next = graph_.Add(buffer, x_);
  graph_.Assign(buffer, next);
  EXPECT_THAT(Made(), IsEmpty());
  EXPECT_THAT(Made({.spec = {.loss = x_, .optimizer = SgdOptions{}}}), ElementsAre(next.id));
}

TEST_F(DeadCodeTest, AssignmentsOfAllProgramsAlwaysCount) {
  const Tensor buffer = graph_.Buffer("count", {FLOAT32, {4}}, std::vector<float>(4));
  const Tensor next = graph_.Add(buffer, x_);
  graph_.Assign(buffer, next, graph::Assigned::kAlways);
  EXPECT_THAT(Made(), ElementsAre(next.id));
  EXPECT_EQ(Live().graph.assignments().size(), 1u);
}

TEST_F(DeadCodeTest, WithoutTrainingMicroBatchesAreCountedWhereTheirNumberIsRead) {
  const Tensor random = graph_.Random(v1::Random::UNIFORM, {FLOAT32, {4}});
  const graph::Assignment counter = graph_.assignments().back();
  EXPECT_THAT(Live().graph.assignments(), IsEmpty());
  EXPECT_THAT(Made(), IsEmpty());
  graph_.Output("random", random);
  ASSERT_EQ(Live().graph.assignments().size(), 1u);
  EXPECT_EQ(Live().graph.assignments()[0].variable, counter.variable);
  EXPECT_THAT(Made(), testing::Contains(counter.value.id));
}

TEST_F(DeadCodeTest, StoresAreAlwaysNeeded) {
  const graph::RemoteBuffer rows = graph_.AddRemoteBuffer("rows", {FLOAT32, {4}}, 2);
  const Tensor a = graph_.Relu(x_);
  graph_.RemoteStore(rows, a, graph_.Constant({INT32, {}}, 1));
  EXPECT_THAT(Made(), ElementsAre(a.id));
  const std::vector<graph::Node> live = Live().graph.nodes();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_TRUE(live[1].instruction.has_remote_store());
}

TEST_F(DeadCodeTest, WhatRoundingsFollowFromComesFirst) {
  const Tensor a = graph_.Relu(x_), b = graph_.Add(y_, y_), c = graph_.Add(a, b);
  graph_.Output("c", c);
  EXPECT_THAT(Made(), ElementsAre(a.id, b.id, c.id));
  EXPECT_THAT(Made({.rounding = {{0, {.number = b}}}}), ElementsAre(b.id, a.id, c.id));
}

}  // namespace
}  // namespace vpod::compiler
