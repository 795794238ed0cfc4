// ResNet-18 trains on several IPUs as on one, to the bit.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/resnet_training.h"
#include "client/session/ipu_model.h"

namespace vpod::models {
namespace {

using compiler::Recomputation;
using compiler::Schedule;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

std::vector<float> Train(program::v1::DataType type, const ResNetTraining& training) {
  auto device = session::CreateIpuModel(
      {.replicas = training.replicas, .ipus_per_replica = training.ipus, .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  if (!device.ok()) return {};
  const auto losses = TrainResNet18(type, training, *std::move(device));
  EXPECT_TRUE(losses.ok()) << losses.status();
  return losses.ok() ? *losses : std::vector<float>();
}

class PipelinedTraining : public ::testing::TestWithParam<program::v1::DataType> {};

INSTANTIATE_TEST_SUITE_P(Types, PipelinedTraining, ::testing::Values(FLOAT32, FLOAT16),
                         [](const auto& info) { return program::v1::DataType_Name(info.param); });

TEST_P(PipelinedTraining, ResNet18HasTheLossesOfOneIpu) {
  const std::vector<float> expected = Train(GetParam(), {});
  ASSERT_EQ(expected.size(), ResNetTraining::kUpdates * 7);
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
    ResNetTraining off_chip{static_cast<uint32_t>(ipus), schedule};
    off_chip.off_chip_optimizer_state = off_chip.off_chip_activations = true;
    EXPECT_EQ(Train(GetParam(), off_chip), expected);
    off_chip.off_chip_weights = off_chip.off_chip_accumulators = true;
    EXPECT_EQ(Train(GetParam(), off_chip), expected);
  }
}

TEST_P(PipelinedTraining, FourReplicasHaveTheLossesOfOneIpu) {
  ResNetTraining training;
  training.accumulation = 8;
  const std::vector<float> expected = Train(GetParam(), training);
  ASSERT_EQ(expected.size(), ResNetTraining::kUpdates * 8);
  EXPECT_NE(expected.front(), expected.back());
  training.accumulation = 2;
  training.replicas = 4;
  EXPECT_EQ(Train(GetParam(), training), expected);
  training.tensor_shards = 4;
  EXPECT_EQ(Train(GetParam(), training), expected);
}

}  // namespace
}  // namespace vpod::models
