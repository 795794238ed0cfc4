// Many variables in one call.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using compiler::AdamOptions;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

// A model of two replicas, which share out Adam's moments of its large weights if `shards` is 2.
std::unique_ptr<Session> Open(uint32_t shards = 1) {
  Graph graph;
  const graph::TensorType type{FLOAT32, {4, 2}};
  const Tensor w = graph.Variable("w", type, {0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor h = graph.Variable("h", {FLOAT16, {2}}, {0.5, 1.5});
  const Tensor count = graph.Buffer("count", {INT32, {}}, {7});
  const Tensor sum = graph.Add(graph.Multiply(w, graph.Input("x", type)), graph.Cast(h, FLOAT32));
  const Tensor large =
      graph.Variable("large", {FLOAT32, {64, 128}}, graph::InitialValue::Filled(0.5));
  graph.Output("counted", count);
  const auto compiled =
      compiler::Compile(graph, {.total_replicas = 2,
                                .tensor_shards = shards,
                                .programs = {{.name = "train",
                                              .loss = graph.Add(graph.Sum(sum), graph.Sum(large)),
                                              .optimizer = AdamOptions{}}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto session = Session::Create(*CreateIpuModel({.replicas = 2}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

using Matrix = std::array<float, 8>;

TEST(StateTest, ReadsWhatWasWritten) {
  const auto session = Open();
  ASSERT_NE(session, nullptr);
  const Matrix values = {8, 7, 6, 5, 4, 3, 2, 1};
  const std::array<uint16_t, 2> halves = {0x3c00, 0x4000};  // 1, 2
  const int32_t count = 1 << 30;
  ASSERT_EQ(session->WriteState({{"w", &values, sizeof(values)},
                                 {"h", &halves, sizeof(halves)},
                                 {"count", &count, sizeof(count)}}),
            absl::OkStatus());
  for (uint32_t replica : {0, 1}) {
    Matrix w = {};
    std::array<uint16_t, 2> h = {};
    int32_t counted = 0;
    ASSERT_EQ(
        session->ReadState(
            {{"count", &counted, sizeof(counted)}, {"w", &w, sizeof(w)}, {"h", &h, sizeof(h)}},
            replica),
        absl::OkStatus());
    EXPECT_EQ(w, values);
    EXPECT_EQ(h, halves);
    EXPECT_EQ(counted, count);
  }
  EXPECT_EQ(session->ReadState({}), absl::OkStatus());
  EXPECT_EQ(session->WriteState({}), absl::OkStatus());
}

TEST(StateTest, OneReplicaMayBeWrittenAlone) {
  const auto session = Open();
  ASSERT_NE(session, nullptr);
  const Matrix values = {8, 7, 6, 5, 4, 3, 2, 1};
  ASSERT_EQ(session->WriteState({{"w", &values, sizeof(values)}}, 1), absl::OkStatus());
  EXPECT_EQ(*session->ReadFloats("w", 0), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(*session->ReadFloats("w", 1), std::vector<float>(values.begin(), values.end()));
}

TEST(StateTest, StateThatReplicasShareOutIsWhole) {
  const auto session = Open(/*shards=*/2);
  ASSERT_NE(session, nullptr);
  std::vector<float> values(64 * 128), read(values.size());
  std::iota(values.begin(), values.end(), 0);
  const uint64_t bytes = values.size() * sizeof(float);
  const std::string moment = "Accl1___large";
  ASSERT_EQ(session->WriteState({{moment, values.data(), bytes}}), absl::OkStatus());
  ASSERT_EQ(session->ReadState({{moment, read.data(), bytes}}, 1), absl::OkStatus());
  EXPECT_EQ(read, values);
  const Matrix other = {};
  EXPECT_EQ(session->WriteState({{"w", &other, sizeof(other)}, {moment, values.data(), bytes}}, 0),
            absl::InvalidArgumentError("variable '" + moment +
                                       "' is shared out among 2 replicas, so that replica 0 cannot "
                                       "be written alone"));
  EXPECT_EQ((*session->ReadFloats("w"))[7], 7) << "nothing was written";
}

TEST(StateTest, MistakesAreNamedBeforeAnythingIsWritten) {
  const auto session = Open();
  ASSERT_NE(session, nullptr);
  Matrix values = {};
  const auto write = [&](WriteFrom second, std::optional<uint32_t> replica = std::nullopt) {
    return session->WriteState({{"w", &values, sizeof(values)}, second}, replica);
  };
  EXPECT_EQ(write({"h", &values, 8}),
            absl::InvalidArgumentError("variable 'h' has 4 bytes; 8 given"));
  EXPECT_EQ(write({"h", nullptr, 4}),
            absl::InvalidArgumentError("variable 'h' has 4 bytes; 4 at a null pointer given"));
  EXPECT_TRUE(absl::IsNotFound(write({"v", &values, 4})));
  EXPECT_EQ(write({"h", &values, 4}, 2),
            absl::InvalidArgumentError("replica 2 does not exist; there are 2"));
  EXPECT_EQ((*session->ReadFloats("w"))[7], 7) << "nothing was written";
  values[0] = 9;
  EXPECT_EQ(session->ReadState({{"w", &values, sizeof(values)}, {"h", &values, 3}}),
            absl::InvalidArgumentError("variable 'h' has 4 bytes; 3 given"));
  EXPECT_EQ(values[0], 9) << "nothing was read";
  EXPECT_FALSE(session->ReadState({{"w", &values, sizeof(values)}}, 2).ok());
}

}  // namespace
}  // namespace vpod::session
