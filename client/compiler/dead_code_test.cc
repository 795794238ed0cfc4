#include "client/compiler/dead_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

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
  // The values that the nodes make.
  static std::vector<uint32_t> Made(const LiveCode& live) {
    std::vector<uint32_t> made;
    for (const graph::Node& node : live.nodes)
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
  const LiveCode live = FindLiveCode(graph_, /*assigns=*/false, {}, {});
  EXPECT_THAT(Made(live), ElementsAre(a.id));
  EXPECT_THAT(live.inputs, ElementsAre(x_.id));
  EXPECT_THAT(live.results, ElementsAre(a.id));
}

TEST_F(DeadCodeTest, AReshapeKeepsWhatItShares) {
  const Tensor a = graph_.Relu(x_), square = graph_.Reshape(a, {2, 2});
  graph_.Output("square", square);
  const LiveCode live = FindLiveCode(graph_, /*assigns=*/false, {}, {});
  EXPECT_THAT(Made(live), ElementsAre(a.id));
  EXPECT_THAT(live.results, ElementsAre(a.id));
}

TEST_F(DeadCodeTest, GivenResultsLiveLikeOutputs) {
  const Tensor a = graph_.Relu(x_);
  EXPECT_THAT(FindLiveCode(graph_, false, {}, {}).nodes, IsEmpty());
  EXPECT_THAT(Made(FindLiveCode(graph_, false, {}, {a.id})), ElementsAre(a.id));
}

TEST_F(DeadCodeTest, AssignmentsCountWhereBuffersAreAssigned) {
  const Tensor buffer = graph_.Buffer("mean", {FLOAT32, {4}}, std::vector<float>(4));
  const Tensor next = graph_.Add(buffer, x_);
  graph_.Assign(buffer, next);
  EXPECT_THAT(FindLiveCode(graph_, /*assigns=*/false, {}, {}).nodes, IsEmpty());
  EXPECT_THAT(Made(FindLiveCode(graph_, /*assigns=*/true, {}, {})), ElementsAre(next.id));
}

TEST_F(DeadCodeTest, StoresAreAlwaysNeeded) {
  const graph::RemoteBuffer rows = graph_.AddRemoteBuffer("rows", {FLOAT32, {4}}, 2);
  const Tensor a = graph_.Relu(x_);
  graph_.RemoteStore(rows, a, graph_.Constant({INT32, {}}, 1));
  const LiveCode live = FindLiveCode(graph_, /*assigns=*/false, {}, {});
  EXPECT_THAT(Made(live), ElementsAre(a.id));
  ASSERT_EQ(live.nodes.size(), 2u);
  EXPECT_TRUE(live.nodes[1].instruction.has_remote_store());
}

TEST_F(DeadCodeTest, WhatMakesTheFirstValuesComesFirst) {
  const Tensor a = graph_.Relu(x_), b = graph_.Add(y_, y_), c = graph_.Add(a, b);
  graph_.Output("c", c);
  EXPECT_THAT(Made(FindLiveCode(graph_, false, {}, {})), ElementsAre(a.id, b.id, c.id));
  EXPECT_THAT(Made(FindLiveCode(graph_, false, {b.id}, {})), ElementsAre(b.id, a.id, c.id));
}

}  // namespace
}  // namespace vpod::compiler
