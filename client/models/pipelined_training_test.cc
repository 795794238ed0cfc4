// ResNet-18 trains on several IPUs as on one, to the bit.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/resnet.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::models {
namespace {

using compiler::Recomputation;
using compiler::Schedule;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

struct Case {
  uint32_t ipus = 1;
  Schedule schedule = Schedule::kSharded;
  Recomputation recomputation = Recomputation::kNone;
  bool off_chip_optimizer_state = false;
  bool off_chip_activations = false;
  bool off_chip_weights = false;
  bool off_chip_accumulators = false;
  uint32_t replicas = 1;
  uint32_t tensor_shards = 1;
  uint32_t accumulation = 7;
};

std::vector<std::string> Stages(uint32_t ipus) {
  if (ipus == 1) return {};
  return ipus == 2 ? std::vector<std::string>{"layer3.0"}
                   : std::vector<std::string>{"layer2.0", "layer3.0", "layer4.0"};
}

// The losses of twenty updates, replica by replica in each. Replicas have the micro-batches of an
// update one after the other.
std::vector<float> Train(program::v1::DataType type, const Case& test) {
  constexpr uint32_t kUpdates = 20;
  Graph g;
  const nn::Builder net(g, {.seed = 3, .training = true});
  const Tensor images = g.Cast(g.Input("images", {FLOAT32, {1, 3, 32, 32}}), type);
  ResNetOptions options = ResNet18();
  options.small_images = true;
  options.classes = 10;
  options.stages = Stages(test.ipus);
  options.checkpoints = {"layer1.0", "layer3.0"};
  const Tensor logits = ResNet(net, images, options);
  const Tensor labels = g.Input("labels", {INT32, {1}});
  const Tensor loss = g.Mean(g.SoftmaxCrossEntropy(g.Cast(logits, FLOAT32), labels));
  g.Output("loss", loss);
  compiler::CompileOptions compile{
      .ipus_per_replica = test.ipus, .total_replicas = test.replicas, .schedule = test.schedule};
  compile.recomputation = test.recomputation;
  compile.off_chip_optimizer_state = test.off_chip_optimizer_state;
  compile.off_chip_activations = test.off_chip_activations;
  compile.off_chip_weights = test.off_chip_weights;
  compile.off_chip_accumulators = test.off_chip_accumulators;
  compile.tensor_shards = test.tensor_shards;
  compile.programs = {
      {.name = "train",
       .accumulation = test.accumulation,
       .loss = loss,
       .optimizer = compiler::SgdOptions{.learning_rate = 0.02f, .momentum = 0.9f}}};
  std::vector<float> losses;
  const auto compiled = compiler::Compile(g, compile);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return losses;
  auto device = session::CreateIpuModel(
      {.replicas = test.replicas, .ipus_per_replica = test.ipus, .compute_threads = 2});
  auto session = session::Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return losses;
  std::mt19937 generator(5);
  for (uint32_t update = 0; update < kUpdates; ++update) {
    for (uint32_t replica = 0; replica < test.replicas; ++replica) {
      const auto pixels = *(*session)->Stream<float>("images", replica);
      for (float& pixel : pixels) pixel = static_cast<float>(generator() % 256) / 128 - 1;
    }
    for (uint32_t replica = 0; replica < test.replicas; ++replica) {
      const auto classes = *(*session)->Stream<int32_t>("labels", replica);
      for (int32_t& label : classes) label = static_cast<int32_t>(generator() % 10);
    }
    const auto cycles = (*session)->Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    if (!cycles.ok()) return losses;
    for (uint32_t replica = 0; replica < test.replicas; ++replica) {
      const auto stream = *(*session)->Stream<float>("loss", replica);
      losses.insert(losses.end(), stream.begin(), stream.end());
    }
  }
  return losses;
}

class PipelinedTraining : public ::testing::TestWithParam<program::v1::DataType> {};

INSTANTIATE_TEST_SUITE_P(Types, PipelinedTraining, ::testing::Values(FLOAT32, FLOAT16),
                         [](const auto& info) { return program::v1::DataType_Name(info.param); });

TEST_P(PipelinedTraining, ResNet18HasTheLossesOfOneIpu) {
  const std::vector<float> expected = Train(GetParam(), {});
  ASSERT_EQ(expected.size(), 20u * 7);
  EXPECT_NE(expected.front(), expected.back());
  for (uint32_t ipus : {2, 4}) {
    for (Schedule schedule : {Schedule::kSharded, Schedule::kPhased, Schedule::kGrouped,
                              Schedule::kInterleaved, Schedule::kSequential}) {
      SCOPED_TRACE(absl::StrCat(ipus, " IPUs, schedule ", static_cast<int>(schedule)));
      EXPECT_EQ(Train(GetParam(), {ipus, schedule}), expected);
    }
  }
  for (Recomputation recomputation : {Recomputation::kStandard, Recomputation::kNormOnly,
                                      Recomputation::kPipeline, Recomputation::kAll}) {
    SCOPED_TRACE(absl::StrCat("recomputation ", static_cast<int>(recomputation)));
    EXPECT_EQ(Train(GetParam(), {2, Schedule::kGrouped, recomputation}), expected);
  }
  for (const auto& [ipus, schedule] :
       {std::pair{1, Schedule::kSharded}, {2, Schedule::kSharded}, {2, Schedule::kGrouped}}) {
    SCOPED_TRACE(absl::StrCat("off the chip on ", ipus, " IPUs"));
    Case off_chip{static_cast<uint32_t>(ipus), schedule};
    off_chip.off_chip_optimizer_state = off_chip.off_chip_activations = true;
    EXPECT_EQ(Train(GetParam(), off_chip), expected);
    off_chip.off_chip_weights = off_chip.off_chip_accumulators = true;
    EXPECT_EQ(Train(GetParam(), off_chip), expected);
  }
}

TEST_P(PipelinedTraining, FourReplicasHaveTheLossesOfOneIpu) {
  Case test;
  test.accumulation = 8;
  const std::vector<float> expected = Train(GetParam(), test);
  ASSERT_EQ(expected.size(), 20u * 8);
  EXPECT_NE(expected.front(), expected.back());
  test.accumulation = 2;
  test.replicas = 4;
  EXPECT_EQ(Train(GetParam(), test), expected);
  test.tensor_shards = 4;
  EXPECT_EQ(Train(GetParam(), test), expected);
}

}  // namespace
}  // namespace vpod::models
