// Random elements are new in each micro-batch of every program that draws them.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using compiler::CompileOptions;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using Draws = std::vector<std::vector<float>>;

constexpr int64_t kElements = 5;

std::unique_ptr<Session> Open(const Graph& graph, const CompileOptions& options) {
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto session = Session::Create(*CreateIpuModel({.replicas = options.total_replicas,
                                                  .ipus_per_replica = options.ipus_per_replica,
                                                  .compute_threads = 2}),
                                 *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

// Draws "a" on the first IPU and "b" on the last one; `train` trains with both.
struct Network {
  explicit Network(uint32_t ipus = 1) {
    const Tensor a = graph.Random(program::v1::Random::UNIFORM, {FLOAT32, {kElements}});
    graph.SetIpu(ipus - 1);
    const Tensor b = graph.Random(program::v1::Random::UNIFORM, {FLOAT32, {kElements}});
    const Tensor w = graph.Variable("w", {FLOAT32, {}}, {1});
    graph.Output("a", a);
    graph.Output("b", b);
    // The last IPU of a pipeline computes it from a value of the first IPU.
    graph.Output("product", graph.Multiply(a, b));
    train = {.name = "train",
             .loss = graph.Sum(graph.Multiply(graph.Multiply(a, b), w)),
             .optimizer = compiler::SgdOptions{}};
  }
  Graph graph;
  compiler::ProgramSpec train;
};

// The numbers that a run draws, by micro-batch in order, then by operation.
Draws Draw(Session& session, const std::string& program) {
  const auto cycles = session.Run(program);
  EXPECT_TRUE(cycles.ok()) << cycles.status();
  const uint32_t replicas = session.device().local_replicas();
  const size_t steps = session.Stream<float>("a", 0)->size() / kElements;
  Draws draws;
  for (size_t step = 0; step < steps; ++step) {
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      for (const char* name : {"a", "b"}) {
        const auto values = session.Stream<float>(name, replica)
                                ->subspan(step * static_cast<size_t>(kElements), kElements);
        draws.emplace_back(values.begin(), values.end());
      }
    }
  }
  return draws;
}

void Append(Draws more, Draws& draws) {
  for (auto& draw : more) draws.push_back(std::move(draw));
}

size_t Different(const Draws& draws) {
  return std::set<std::vector<float>>(draws.begin(), draws.end()).size();
}

TEST(RandomTest, EachRunAndIterationOfAProgramThatDoesNotTrainDrawsAnew) {
  for (uint32_t ipus : {1u, 2u}) {
    const auto session =
        Open(Network(ipus).graph, {.ipus_per_replica = ipus,
                                   .total_replicas = 2,
                                   .programs = {{.name = "infer", .device_iterations = 3}}});
    ASSERT_TRUE(session);
    Draws draws;
    for (int run = 0; run < 3; ++run) Append(Draw(*session, "infer"), draws);
    EXPECT_EQ(draws.size(), 3u * 3 * 2 * 2);
    EXPECT_EQ(Different(draws), draws.size());
    EXPECT_EQ(*session->ReadFloats("random/counter", 1), std::vector<float>{9});
  }
}

TEST(RandomTest, ProgramsThatTakeTurnsDrawDifferentElements) {
  const Network network;
  const auto session =
      Open(network.graph, {.total_replicas = 2, .programs = {network.train, {.name = "infer"}}});
  ASSERT_TRUE(session);
  Draws draws;
  for (const char* program : {"infer", "train", "train", "infer", "infer", "train"})
    Append(Draw(*session, program), draws);
  EXPECT_EQ(Different(draws), draws.size());
}

TEST(RandomTest, DrawsDoNotDependOnHowMicroBatchesAreDealtAndPipelined) {
  const auto draw = [](uint32_t ipus, uint32_t replicas, compiler::Schedule schedule) {
    const auto session = Open(Network(ipus).graph,
                              {.ipus_per_replica = ipus,
                               .total_replicas = replicas,
                               .schedule = schedule,
                               .programs = {{.name = "infer", .device_iterations = 8 / replicas}}});
    Draws draws;
    for (int run = 0; run < 2; ++run) Append(Draw(*session, "infer"), draws);
    return draws;
  };
  for (uint32_t ipus : {1u, 2u}) {
    const Draws whole = draw(ipus, 1, compiler::Schedule::kSharded);
    EXPECT_EQ(Different(whole), whole.size());
    for (uint32_t replicas : {2u, 4u, 8u})
      EXPECT_EQ(draw(ipus, replicas, compiler::Schedule::kSharded), whole) << replicas;
    EXPECT_EQ(draw(ipus, 2, compiler::Schedule::kGrouped), whole);
    EXPECT_EQ(draw(ipus, 4, compiler::Schedule::kSequential), whole);
  }
}

TEST(RandomTest, ElementsFollowFromTheCounter) {
  const auto session = Open(Network().graph, {.programs = {{.name = "infer"}}});
  ASSERT_TRUE(session);
  const Draws first = Draw(*session, "infer"), second = Draw(*session, "infer");
  ASSERT_TRUE(session->WriteFloats("random/counter", std::vector<float>{1}).ok());
  EXPECT_EQ(Draw(*session, "infer"), second);
  EXPECT_NE(first, second);
}

TEST(RandomTest, AProgramThatDrawsNothingCountsNothing) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {4}});
  const Tensor y = graph.Multiply(x, graph.Variable("w", {FLOAT32, {4}}, {1, 1, 1, 1}));
  graph.Output("y", y);
  const Tensor loss = graph.Mean(graph.Dropout(y, 0.5f));
  const auto both = Open(
      graph, {.programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}},
                           {.name = "infer"}}});
  ASSERT_TRUE(both);
  ASSERT_TRUE(both->Run("infer").ok());
  EXPECT_EQ(*both->ReadFloats("random/counter"), std::vector<float>{0});
  ASSERT_TRUE(both->Run("train").ok());
  EXPECT_EQ(*both->ReadFloats("random/counter"), std::vector<float>{1});
}

}  // namespace
}  // namespace vpod::session
