#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/nn/builder.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::nn {
namespace {

using program::v1::DataType;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

// Running moments follow those of the batches, the variance without bias; inference uses them.
TEST(BatchNormTest, KeepsRunningMoments) {
  Graph graph;
  const Builder net(graph, {.training = true});
  const Tensor x = graph.Input("x", {FLOAT32, {4, 1}});
  const Tensor loss = graph.Sum(net.BatchNorm("bn", x, {.momentum = 0.5f}));
  graph.Output("loss", loss);
  const auto compiled =
      compiler::Compile(graph, {.programs = {{.name = "train",
                                              .accumulation = 2,
                                              .loss = loss,
                                              .optimizer = compiler::SgdOptions{}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto session = session::Session::Create(*session::CreateIpuModel({}), *compiled);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto stream = *(*session)->Stream<float>("x", 0);
  const float values[] = {1, 2, 3, 6, 5, 5, 7, 7};
  std::copy(std::begin(values), std::end(values), stream.begin());
  ASSERT_TRUE((*session)->Run("train").ok());
  // Means 3 and 6, unbiased variances 14/3 and 4/3, in the order of the micro-batches.
  const auto mean = *(*session)->ReadFloats("bn.running_mean"),
             variance = *(*session)->ReadFloats("bn.running_var");
  EXPECT_FLOAT_EQ(mean[0], (0 * 0.5f + 3 * 0.5f) * 0.5f + 6 * 0.5f);
  EXPECT_FLOAT_EQ(variance[0], (1 * 0.5f + 14.0f / 3 * 0.5f) * 0.5f + 4.0f / 3 * 0.5f);
}

// Variables after three updates by eight images in all, which replicas share out.
std::vector<float> Train(DataType type, uint32_t replicas, uint32_t norm_replicas) {
  const int64_t images = 8 / replicas, elements = images * 3 * 2;
  Graph graph;
  const Builder net(graph, {.training = true, .norm_replicas = norm_replicas});
  const Tensor x = graph.Cast(graph.Input("x", {FLOAT32, {images, 3, 2}}), type),
               shift = graph.Variable("shift", {type, {1, 3, 1}}, graph::InitialValue::Filled(0.5));
  const Tensor y =
      net.BatchNorm("bn", graph.Unary(program::v1::TANH, graph.Add(x, shift)), {.momentum = 0.5f});
  EXPECT_EQ(graph.TypeOf(y).type, type);
  const Tensor loss = graph.Mean(graph.Unary(program::v1::TANH, graph.Multiply(y, x)));
  graph.Output("loss", loss);
  const auto compiled = compiler::Compile(
      graph, {.total_replicas = replicas,
              .programs = {{.name = "train",
                            .device_iterations = 3,
                            .loss = loss,
                            .optimizer = compiler::SgdOptions{.learning_rate = 0.5f}}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  auto session = session::Session::Create(
      *session::CreateIpuModel({.replicas = replicas, .compute_threads = 2}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  std::mt19937 random(7);
  for (uint32_t update = 0; update < 3; ++update) {
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      const auto stream = *(*session)->Stream<float>("x", replica);
      for (int64_t i = 0; i < elements; ++i) {
        stream[static_cast<size_t>(update * elements + i)] =
            static_cast<float>(random() % 256) / 64 - 2;
      }
    }
  }
  const auto ran = (*session)->Run("train");
  EXPECT_TRUE(ran.ok()) << ran.status();
  std::vector<float> values;
  for (const char* name : {"shift", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}) {
    const auto variable = (*session)->ReadFloats(name);
    EXPECT_TRUE(variable.ok()) << variable.status();
    values.insert(values.end(), variable->begin(), variable->end());
  }
  return values;
}

TEST(BatchNormTest, GroupsOfReplicasNormaliseAsOneReplicaWithAllTheirImages) {
  for (DataType type : {FLOAT32, FLOAT16}) {
    const float tolerance = type == FLOAT32 ? 1e-5f : 5e-3f;
    for (const auto& [replicas, group] : {std::pair{4u, 2u}, {4u, 4u}, {8u, 2u}}) {
      SCOPED_TRACE(absl::StrCat(DataType_Name(type), ", groups of ", group, " of ", replicas));
      const std::vector<float> whole = Train(type, replicas / group, 1),
                               shared = Train(type, replicas, group),
                               alone = Train(type, replicas, 1);
      ASSERT_EQ(shared.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(shared[i], whole[i], tolerance) << i;
      if (type == FLOAT32) {
        EXPECT_GT(std::abs(alone[0] - whole[0]), 100 * tolerance);
      }
    }
  }
}

TEST(BatchNormTest, GroupsDivideTheReplicasOfTheJob) {
  Graph graph;
  const Builder net(graph, {.training = true, .norm_replicas = 3});
  const Tensor loss = graph.Mean(net.BatchNorm("bn", graph.Input("x", {FLOAT32, {4, 1}})));
  const auto compiled = compiler::Compile(
      graph, {.total_replicas = 4,
              .programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto session =
      session::Session::Create(*session::CreateIpuModel({.replicas = 4}), *compiled);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument) << session.status();
}

}  // namespace
}  // namespace vpod::nn
