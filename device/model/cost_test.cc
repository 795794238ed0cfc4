#include "device/model/cost.h"

#include <gtest/gtest.h>

#include "device/arch/hardware.h"

namespace vpod::model {
namespace {

using program::v1::FLOAT16;
using program::v1::FLOAT32;

// spec/hardware.md 2.2: "rule 1" for fp16 [N,16]x[16,16] on one tile; the call overhead F4 comes on
// top.
struct AmpRow {
  uint64_t rows, rule, measured;
};
class AmpRule : public testing::TestWithParam<AmpRow> {};

TEST_P(AmpRule, MatchesThePublishedCurve) {
  const AmpRow row = GetParam();
  const uint64_t cycles = AmpPanelCycles(row.rows, FLOAT16).value();
  EXPECT_EQ(cycles - arch::kAmpCallCycles, row.rule);
  EXPECT_NEAR(static_cast<double>(cycles), static_cast<double>(row.measured), 12);
}

INSTANTIATE_TEST_SUITE_P(Table, AmpRule,
                         testing::Values(AmpRow{16, 377, 402}, AmpRow{32, 425, 461},
                                         AmpRow{64, 545, 584}, AmpRow{96, 679, 716},
                                         AmpRow{128, 809, 845}, AmpRow{256, 1313, 1352},
                                         AmpRow{512, 2345, 2381}, AmpRow{1024, 4385, 4424},
                                         AmpRow{1536, 6439, 6476}, AmpRow{2048, 8489, 8525}));

// spec/hardware.md 7.3: 1,048,576 half adds take 671 cycles.
TEST(CostTest, ElementwiseExample) {
  EXPECT_EQ(ElementwiseCycles(1048576, FLOAT16, 3).value(), 671u);
}

TEST(CostTest, MatMulTimeGrowsWithWorkAndFloat32IsSlower) {
  const auto small = MatMulCost(1024, 1024, 1024, FLOAT16).total();
  EXPECT_LT(small, MatMulCost(4096, 1024, 1024, FLOAT16).total());
  EXPECT_LT(small, MatMulCost(1024, 1024, 1024, FLOAT32).total());
}

// spec/hardware.md 4: a 51 MB gradient over 16 replicas takes about 1.8 ms on a bidirectional ring,
// plus steps.
TEST(CostTest, AllReduceExample) {
  const Topology pod16{1.33e9, 16, 1};
  const CollectiveLoad load{.bytes = 51'000'000, .elements = 25'500'000, .members = 16};
  const double ms = static_cast<double>(CollectiveCost(load, pod16).exchange.value()) / 1.33e6;
  EXPECT_NEAR(ms, 1.8, 0.05);
  EXPECT_EQ(CollectiveCost({.bytes = 51'000'000}, {1.33e9, 1, 1}).total().value(), 0u);
}

// spec/hardware.md 4: the bandwidth terms of the other kinds, for 1 GB, so that steps do not count.
TEST(CostTest, CollectivesMoveWhatTheirFormulasSay) {
  using program::v1::Instruction;
  const auto seconds = [](program::OpKind kind, uint64_t members, uint64_t stride = 1) {
    const CollectiveLoad load{kind, 1'000'000'000, 1, members, stride};
    return static_cast<double>(CollectiveCost(load, {1.33e9, 256, 1}).exchange.value()) / 1.33e9;
  };
  const double ring = 1e9 / arch::kRingBytesPerSecond;
  EXPECT_NEAR(seconds(Instruction::kReduceScatter, 16), ring * 15 / 16, 1e-4);
  EXPECT_NEAR(seconds(Instruction::kAllGather, 16), ring * 15 / 16, 1e-4);
  EXPECT_NEAR(seconds(Instruction::kBroadcast, 16), ring, 1e-4);
  EXPECT_NEAR(seconds(Instruction::kAllToAll, 16), ring * 4 * 15 / 16, 1e-4);
  // Four racks: a 64th of the bytes goes over the GW-Links, 21.25 GB/s a machine of four IPUs.
  const double gateway = 1e9 / (21.25e9 / 4);
  EXPECT_NEAR(seconds(Instruction::kAllReduce, 256), 2 * (ring * 63 / 64 + gateway / 64 * 3 / 4),
              1e-4);
  // The same group in four racks of which the partition has 16 IPUs each.
  const CollectiveLoad small{Instruction::kAllReduce, 1'000'000'000, 1, 64, 1};
  EXPECT_NEAR(
      static_cast<double>(CollectiveCost(small, {1.33e9, 64, 1, 16}).exchange.value()) / 1.33e9,
      2 * (ring * 15 / 16 + gateway / 16 * 3 / 4), 1e-4);
  // GW-Links only.
  EXPECT_NEAR(seconds(Instruction::kAllReduce, 4, 64), 2 * gateway * 3 / 4, 1e-4);
}

// spec/hardware.md 3.3: 24 MiB take 4,628,154 cycles at 1.33 GHz, i.e. 7.2 GB/s; one machine's DDR
// halves it when all four IPUs stream at once, which is what the price assumes.
TEST(CostTest, StreamsAreBoundByTheGatewayMemory) {
  const Cost cost = StreamCost(24 << 20, arch::kTilesPerIpu, {1.33e9, 1, 1});
  EXPECT_GT(cost.exchange.value(), 4'628'154u);
}

TEST(CostTest, StreamsCountTheirBytes) {
  program::v1::Executable executable;
  executable.add_ipus();
  for (int i = 0; i < 2; ++i) {
    program::v1::Stream* stream = executable.add_streams();
    stream->set_type(FLOAT16);
    stream->add_dims(100);
  }
  program::v1::Ipu* ipu = executable.mutable_ipus(0);
  program::v1::Function* body = ipu->add_functions();
  body->add_instructions()->mutable_stream_in()->set_stream(0);
  body->add_instructions()->mutable_stream_in()->set_stream(0);
  program::v1::Function* entry = ipu->add_functions();
  entry->add_instructions()->mutable_repeat()->set_count(3);
  entry->add_instructions()->mutable_stream_out()->set_stream(1);
  executable.add_programs()->add_functions(1);
  const Cost cost = PriceProgram(executable, 0, 0, {1.33e9, 1, 1});
  EXPECT_EQ(cost.from_host.value(), 1200u);
  EXPECT_EQ(cost.to_host.value(), 200u);
}

// Moves of different pairs go side by side; those that leave or reach the same IPU share its links.
TEST(CostTest, MovesOfAnExchangeShareTheLinksOfTheirIpus) {
  const Topology four{1.33e9, 1, 4};
  const auto cycles = [&](const std::vector<InterIpuMove>& moves) {
    return InterIpuExchangeCost(moves, four).exchange.value() - arch::kCollectiveStepCycles;
  };
  const uint64_t bytes = 64 << 20;
  const uint64_t one = cycles({{bytes, 0, 1}});
  EXPECT_GT(one, 0u);
  EXPECT_EQ(cycles({{bytes, 0, 1}, {bytes, 2, 3}}), one);
  EXPECT_EQ(cycles({{bytes, 0, 1}, {bytes, 1, 0}}), one);
  EXPECT_NEAR(static_cast<double>(cycles({{bytes, 0, 1}, {bytes, 0, 1}})),
              2 * static_cast<double>(one), 2);
  EXPECT_GT(cycles({{bytes, 0, 1}, {bytes, 2, 1}}), one);
}

// F2: 32 tiles move 3.52 GB/s, eight a quarter of it.
TEST(CostTest, StreamsOfFewTilesAreBoundByThem) {
  const Topology one{1.33e9, 1, 1};
  const auto seconds = [&](uint32_t tiles) {
    return static_cast<double>(StreamCost(352'000'000, tiles, one).exchange.value()) / 1.33e9;
  };
  EXPECT_NEAR(seconds(32), 0.1, 1e-4);
  EXPECT_NEAR(seconds(8), 0.4, 1e-4);
}

}  // namespace
}  // namespace vpod::model
