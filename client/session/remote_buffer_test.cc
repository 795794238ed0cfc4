// Remote buffers of compiled programs, on the IPUModel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/graph/graph.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Session>> Open(const Graph& graph, uint32_t ipus = 1) {
  const auto compiled =
      compiler::Compile(graph, {.ipus_per_replica = ipus, .programs = {{.name = "run"}}});
  if (!compiled.ok()) return compiled.status();
  auto device = CreateIpuModel({.replicas = 2, .ipus_per_replica = ipus});
  if (!device.ok()) return device.status();
  return Session::Create(*std::move(device), *compiled);
}

// Adds its input to a row, and gives what the row held before.
std::unique_ptr<Session> OpenSums() {
  Graph graph;
  const graph::RemoteBuffer sums = graph.AddRemoteBuffer("sums", {FLOAT32, {2}}, 3);
  const Tensor row = graph.Input("row", {INT32, {}});
  const Tensor before = graph.RemoteLoad(sums, row);
  graph.RemoteStore(sums, graph.Add(before, graph.Input("x", {FLOAT32, {2}})), row);
  graph.Output("before", before);
  auto session = Open(graph);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

absl::Status RunOn(Session& session, int32_t row, std::vector<float> x) {
  for (uint32_t replica = 0; replica < 2; ++replica) {
    (*session.Stream<int32_t>("row", replica))[0] = row;
    for (size_t i = 0; i < 2; ++i)
      (*session.Stream<float>("x", replica))[i] = x[i] + static_cast<float>(replica);
  }
  return session.Run("run").status();
}

std::vector<float> Before(Session& session, uint32_t replica) {
  const auto values = *session.Stream<float>("before", replica);
  return {values.begin(), values.end()};
}

TEST(RemoteBufferTest, RowsKeepTheirValuesBetweenRuns) {
  const auto session = OpenSums();
  ASSERT_TRUE(RunOn(*session, 2, {1, 2}).ok());
  EXPECT_THAT(Before(*session, 0), ElementsAre(0, 0));
  ASSERT_TRUE(RunOn(*session, 2, {10, 20}).ok());
  EXPECT_THAT(Before(*session, 0), ElementsAre(1, 2));
  EXPECT_THAT(Before(*session, 1), ElementsAre(2, 3));
  ASSERT_TRUE(RunOn(*session, 0, {5, 5}).ok());
  EXPECT_THAT(*session->ReadFloats("sums"), ElementsAre(5, 5, 0, 0, 11, 22));
  EXPECT_THAT(*session->ReadFloats("sums", 1), ElementsAre(6, 6, 0, 0, 13, 24));
}

TEST(RemoteBufferTest, TheHostWritesAndSavesThemAsVariables) {
  const auto session = OpenSums();
  ASSERT_TRUE(session->WriteFloats("sums", std::vector<float>{1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(RunOn(*session, 1, {0, 1}).ok());
  EXPECT_THAT(Before(*session, 1), ElementsAre(3, 4));
  const std::string path = testing::TempDir() + "/sums.npz";
  ASSERT_TRUE(session->Save(path).ok());
  const auto other = OpenSums();
  ASSERT_TRUE(other->Load(path).ok());
  EXPECT_THAT(*other->ReadFloats("sums", 1), ElementsAre(1, 2, 3, 5, 5, 6));
  EXPECT_THAT(std::string(session->WriteFloats("sums", std::vector<float>{1}).message()),
              HasSubstr("sums"));
}

TEST(RemoteBufferTest, ARowOutsideFailsTheRun) {
  for (const int32_t row : {-1, 3}) {
    const auto session = OpenSums();
    EXPECT_THAT(
        std::string(RunOn(*session, row, {1, 1}).message()),
        HasSubstr("row " + std::to_string(row) + " of remote buffer 'sums' is outside 0 to 2"));
  }
}

// A batch norm takes over the addition of what is loaded after a store that follows it.
TEST(RemoteBufferTest, FusionKeepsTheOrderOfLoadsAndStores) {
  for (const bool fusion : {false, true}) {
    Graph graph;
    const Tensor row = graph.Constant({INT32, {}}, 0), one = graph.Constant({FLOAT32, {2}}, 1);
    const graph::RemoteBuffer buffer = graph.AddRemoteBuffer("b", {FLOAT32, {2, 2}}, 1);
    const Tensor x = graph.Input("x", {FLOAT32, {2, 2}});
    const Tensor y = graph.BatchNormInference(x, one, one, one, one, 1e-5f);
    graph.RemoteStore(buffer, x, row);
    graph.Output("z", graph.Relu(graph.Add(y, graph.RemoteLoad(buffer, row))));
    const auto compiled =
        compiler::Compile(graph, {.fusion = fusion, .programs = {{.name = "run"}}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto session = Session::Create(*CreateIpuModel({}), *compiled);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto stream = *(*session)->Stream<float>("x", 0);
    std::fill(stream.begin(), stream.end(), 3.0f);
    ASSERT_TRUE((*session)->Run("run").ok());
    // The norm gives 2 / sqrt(1.00001) + 1, the row 3.
    EXPECT_NEAR((*(*session)->Stream<float>("z", 0))[0], 6, 1e-4) << fusion;
  }
}

TEST(RemoteBufferTest, EachIpuHasItsOwn) {
  Graph graph;
  const Tensor row = graph.Constant({INT32, {}}, 0);
  const graph::RemoteBuffer first = graph.AddRemoteBuffer("first", {FLOAT32, {}}, 1);
  graph.SetIpu(1);
  const graph::RemoteBuffer second = graph.AddRemoteBuffer("second", {FLOAT32, {}}, 1);
  graph.SetIpu(0);
  const Tensor moved = graph.Add(graph.RemoteLoad(first, row), graph.Constant({FLOAT32, {}}, 3));
  graph.SetIpu(1);
  graph.RemoteStore(second, moved, row);
  const auto session = Open(graph, 2);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->WriteFloats("first", std::vector<float>{4}).ok());
  ASSERT_TRUE((*session)->Run("run").ok());
  EXPECT_THAT(*(*session)->ReadFloats("second"), ElementsAre(7));
  graph.RemoteStore(first, moved, row);
  EXPECT_EQ(graph.status().message(),
            "remote_store: remote buffer 'first' is of IPU 0, the operation of IPU 1");
}

TEST(RemoteBufferTest, MistakesAreNamed) {
  const auto mistake = [](const auto& build) {
    Graph graph;
    build(graph);
    return std::string(graph.status().message());
  };
  EXPECT_EQ(mistake([](Graph& graph) {
              graph.AddRemoteBuffer("a", {FLOAT32, {}}, 0);
            }),
            "remote buffer 'a': there are 0 rows, must be 1 or more");
  EXPECT_EQ(mistake([](Graph& graph) {
              graph.AddRemoteBuffer("a", {FLOAT32, {}}, 1);
              graph.AddRemoteBuffer("a", {FLOAT32, {}}, 1);
            }),
            "remote buffer 'a': the name is used twice");
  EXPECT_EQ(mistake([](Graph& graph) {
              const auto buffer = graph.AddRemoteBuffer("a", {FLOAT32, {2}}, 1);
              graph.RemoteLoad(buffer, graph.Constant({FLOAT32, {}}, 0));
            }),
            "remote_load: the row's number is float32[], must be an int32 scalar");
  EXPECT_EQ(mistake([](Graph& graph) {
              const auto buffer = graph.AddRemoteBuffer("a", {FLOAT32, {2}}, 1);
              graph.RemoteStore(buffer, graph.Constant({FLOAT32, {3}}, 0),
                                graph.Constant({INT32, {}}, 0));
            }),
            "remote_store: a row of a is float32[2] and its number an int32 scalar; given are "
            "float32[3] and int32[]");
}

}  // namespace
}  // namespace vpod::session
