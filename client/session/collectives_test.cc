// Collectives between replicas, on the IPUModel.
#include <gtest/gtest.h>

#include "client/compiler/compiler.h"
#include "client/graph/graph.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
namespace v1 = program::v1;

v1::ReplicaGroup Group(v1::ReplicaGroup::Kind kind, uint32_t size) {
  v1::ReplicaGroup group;
  group.set_kind(kind);
  group.set_size(size);
  return group;
}

absl::StatusOr<std::unique_ptr<Session>> Open(const Graph& graph, uint32_t replicas,
                                              const compiler::ProgramSpec& spec) {
  compiler::CompileOptions options;
  options.total_replicas = replicas;
  options.programs = {spec};
  auto compiled = compiler::Compile(graph, options);
  if (!compiled.ok()) return compiled.status();
  auto device = CreateIpuModel({.replicas = replicas, .compute_threads = 2});
  if (!device.ok()) return device.status();
  return Session::Create(*std::move(device), *compiled);
}

// Returns what each replica receives when replica r has r * 10, r * 10 + 1, …
std::vector<std::vector<float>> Received(const Graph& graph, uint32_t replicas) {
  auto session = Open(graph, replicas, {.name = "main"});
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  for (uint32_t r = 0; r < replicas; ++r) {
    auto x = *(*session)->Stream<float>("x", r);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(r * 10 + i);
  }
  EXPECT_TRUE((*session)->Run("main").ok());
  std::vector<std::vector<float>> received;
  for (uint32_t r = 0; r < replicas; ++r) {
    const auto y = *(*session)->Stream<float>("y", r);
    received.emplace_back(y.begin(), y.end());
  }
  return received;
}

using Values = std::vector<float>;

TEST(CollectivesTest, AllReduceWithinConsecutiveGroups) {
  Graph graph;
  const auto pairs = Group(v1::ReplicaGroup::CONSECUTIVE, 2);
  graph.Output("y", graph.AllReduce(v1::SQUARE_ADD, graph.Input("x", {v1::FLOAT32, {2}}), pairs));
  const auto received = Received(graph, 4);
  EXPECT_EQ(received[0], (Values{100, 1 + 121}));
  EXPECT_EQ(received[1], received[0]);
  EXPECT_EQ(received[2], (Values{400 + 900, 441 + 961}));
  EXPECT_EQ(received[3], received[2]);
}

TEST(CollectivesTest, ReduceScatterOverAll) {
  Graph graph;
  graph.Output("y", graph.ReduceScatter(v1::MEAN, graph.Input("x", {v1::FLOAT32, {4}}), 4));
  EXPECT_EQ(Received(graph, 4), (std::vector<Values>{{15}, {16}, {17}, {18}}));
}

TEST(CollectivesTest, AllGatherWithinOrthogonalGroups) {
  Graph graph;
  const auto pairs = Group(v1::ReplicaGroup::ORTHOGONAL, 2);
  graph.Output("y", graph.AllGather(graph.Input("x", {v1::FLOAT32, {2}}), 2, pairs));
  EXPECT_EQ(
      Received(graph, 4),
      (std::vector<Values>{{0, 1, 20, 21}, {10, 11, 30, 31}, {0, 1, 20, 21}, {10, 11, 30, 31}}));
}

TEST(CollectivesTest, AllToAllOverAll) {
  Graph graph;
  graph.Output("y", graph.AllToAll(graph.Input("x", {v1::FLOAT32, {3}}), 3));
  EXPECT_EQ(Received(graph, 3), (std::vector<Values>{{0, 10, 20}, {1, 11, 21}, {2, 12, 22}}));
}

TEST(CollectivesTest, BroadcastWithinConsecutiveGroups) {
  Graph graph;
  const auto pairs = Group(v1::ReplicaGroup::CONSECUTIVE, 2);
  graph.Output("y", graph.Broadcast(1, graph.Input("x", {v1::FLOAT32, {1}}), pairs));
  EXPECT_EQ(Received(graph, 4), (std::vector<Values>{{10}, {10}, {30}, {30}}));
}

TEST(CollectivesTest, RefusesAJobOfAnotherSize) {
  Graph graph;
  graph.Output("y", graph.AllGather(graph.Input("x", {v1::FLOAT32, {2}}), 4));
  EXPECT_EQ(Open(graph, 8, {.name = "main"}).status().message(),
            "IPU 0 function 0 instruction 1: the all-gather over 8 replicas does not turn 2 "
            "elements into 8 (collective_c10)");
}

TEST(CollectivesTest, TheBuilderRefusesWhatDoesNotFit) {
  Graph graph;
  graph.ReduceScatter(v1::SUM, graph.Input("x", {v1::FLOAT32, {3}}), 2);
  EXPECT_EQ(graph.status().message(),
            "reduce_scatter: the first dimension of float32[3] is not a multiple of the group's 2 "
            "replicas");
}

// Each replica's loss is the sum of the squares of what it gathered or reduced; the loss of the job
// is that of all replicas.
TEST(CollectivesTest, GradientsFlowBackToAllContributors) {
  for (const bool gather : {false, true}) {
    SCOPED_TRACE(gather);
    Graph graph;
    const Tensor x = graph.Input("x", {v1::FLOAT32, {2}});
    const Tensor w = graph.Variable("w", {v1::FLOAT32, {2}}, {1, 1});
    const Tensor part = graph.Multiply(x, w);
    const Tensor y = gather ? graph.AllGather(part, 2) : graph.AllReduce(v1::SUM, part);
    const Tensor loss = graph.Sum(graph.Unary(v1::SQUARE, y));
    compiler::ProgramSpec spec{
        .name = "train", .loss = loss, .optimizer = compiler::SgdOptions{.learning_rate = 1}};
    spec.reduction = compiler::GradientReduction::kSum;
    auto session = Open(graph, 2, spec);
    ASSERT_TRUE(session.ok()) << session.status();
    for (uint32_t r = 0; r < 2; ++r) {
      auto values = *(*session)->Stream<float>("x", r);
      values[0] = static_cast<float>(r + 1);
      values[1] = static_cast<float>(r + 3);
    }
    ASSERT_TRUE((*session)->Run("train").ok());
    // Total loss: 2 * ((w0 + 2 w0)^2 + (3 w1 + 4 w1)^2), or 2 * (w0^2 + 4 w0^2 + 9 w1^2 + 16 w1^2).
    const Values expected = gather ? Values{1 - 20, 1 - 100} : Values{1 - 36, 1 - 196};
    EXPECT_EQ(*(*session)->ReadFloats("w"), expected);
  }
}

}  // namespace
}  // namespace vpod::session
