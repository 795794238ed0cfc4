#include "device/model/cost.h"

#include <gtest/gtest.h>

#include "device/arch/hardware.h"
#include "device/model/tile_plan.h"

namespace vpod::model {
namespace {

using program::v1::FLOAT16;
using program::v1::FLOAT32;

// Price of steps without the control code around them.
Cost PriceOf(std::vector<PlanStep> steps, const Topology& topology = {}) {
  Cost cost = PricePlan({std::move(steps)}, topology);
  cost.compute = cost.compute - Cycles(arch::kControlCyclesPerStep);
  return cost;
}

// spec/hardware.md 7.3: 1,048,576 half adds take 671 cycles.
TEST(CostTest, ElementwiseExample) {
  EXPECT_EQ(PriceOf({ElementwiseStep(1048576, FLOAT16, 3)}).total().value(), 671u);
}

// spec/hardware.md 4: a 51 MB gradient over 16 replicas takes about 1.8 ms on a bidirectional ring,
// plus steps.
TEST(CostTest, AllReduceExample) {
  const Topology pod16{1.33e9, 16, 1};
  const CollectiveLoad load{.bytes = 51'000'000, .elements = 25'500'000, .members = 16};
  const Cost cost = PriceOf(CollectiveSteps(load, pod16), pod16);
  EXPECT_NEAR(static_cast<double>(cost.exchange.value()) / 1.33e6, 1.8, 0.05);
  EXPECT_TRUE(CollectiveSteps({.bytes = 51'000'000}, {1.33e9, 1, 1}).empty());
}

// spec/hardware.md 4: the bandwidth terms of the other kinds, for 1 GB, so that steps do not count.
TEST(CostTest, CollectivesMoveWhatTheirFormulasSay) {
  using program::v1::Instruction;
  const auto seconds = [](program::OpKind kind, uint64_t members, uint64_t stride = 1) {
    const CollectiveLoad load{kind, 1'000'000'000, 1, members, stride};
    const Topology racks{1.33e9, 256, 1};
    return static_cast<double>(PriceOf(CollectiveSteps(load, racks), racks).exchange.value()) /
           racks.clock_hz;
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
  const Topology sixteen{1.33e9, 64, 1, 16};
  const Cost cost = PriceOf(CollectiveSteps(small, sixteen), sixteen);
  EXPECT_NEAR(static_cast<double>(cost.exchange.value()) / 1.33e9,
              2 * (ring * 15 / 16 + gateway / 16 * 3 / 4), 1e-4);
  // Every fourth replica: four rings side by side share the links of both columns.
  EXPECT_NEAR(seconds(Instruction::kAllGather, 16, 4), 2 * ring * 15 / 16, 1e-4);
  // GW-Links only.
  EXPECT_NEAR(seconds(Instruction::kAllReduce, 4, 64), 2 * gateway * 3 / 4, 1e-4);
}

// Each IPU of a replica has a ring of its own, with the IPUs at its place in other replicas.
TEST(CostTest, RingsOfLargeReplicasShareLinks) {
  const auto seconds = [](uint32_t ipus_per_replica) {
    const Topology topology{1.33e9, 4, ipus_per_replica};
    const CollectiveLoad load{program::v1::Instruction::kAllGather, 1'000'000'000, 1, 4, 1};
    return static_cast<double>(
               PriceOf(CollectiveSteps(load, topology), topology).exchange.value()) /
           topology.clock_hz;
  };
  const double ring = 1e9 / arch::kRingBytesPerSecond * 3 / 4;
  EXPECT_NEAR(seconds(1), ring, 1e-4);
  EXPECT_NEAR(seconds(2), ring, 1e-4);
  EXPECT_NEAR(seconds(4), 2 * ring, 1e-4);
  EXPECT_NEAR(seconds(16), 8 * ring, 1e-4);
}

// spec/hardware.md 3.3: 24 MiB take 4,628,154 cycles at 1.33 GHz, i.e. 7.2 GB/s, if one IPU of the
// machine streams; its memory halves the rate if all four do.
TEST(CostTest, StreamsShareTheMemoryOfTheirMachine) {
  const auto cycles = [](uint32_t ipus) {
    const StreamTransfer transfer{
        .bytes = 24 << 20, .tiles = arch::kTilesPerIpu, .sharing_ipus = ipus};
    return static_cast<double>(PriceOf({{transfer}}).exchange.value());
  };
  EXPECT_NEAR(cycles(1), 4'628'154, 0.01 * 4'628'154);
  EXPECT_EQ(cycles(2), cycles(1));
  EXPECT_NEAR(cycles(4), 2 * cycles(1), 0.01 * cycles(1));
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
    return PriceOf({{InterIpuExchange{moves}}}, four).exchange.value() -
           arch::kCollectiveStepCycles;
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

// F2: 32 tiles move 3.4112 GB/s, eight a quarter of it.
TEST(CostTest, StreamsOfFewTilesAreBoundByThem) {
  const auto seconds = [](uint32_t tiles) {
    const StreamTransfer transfer{.bytes = 341'120'000, .tiles = tiles};
    return static_cast<double>(PriceOf({{transfer}}).exchange.value()) / 1.33e9;
  };
  EXPECT_NEAR(seconds(32), 0.1, 1e-4);
  EXPECT_NEAR(seconds(8), 0.4, 1e-4);
}

// The slowest class of tiles decides, whatever the others do.
TEST(PricePlanTest, ComputeSet) {
  const TileWork many{.tiles = 1000, .supervisor_cycles = 11, .worker_cycles = 40, .calls = 2};
  const TileWork one{.tiles = 1, .supervisor_cycles = 33, .worker_cycles = 100};
  EXPECT_EQ(PriceOf({{ComputeSet{{many}}}}).total().value(), 502u);       // 2 (11 + 6 * 40)
  EXPECT_EQ(PriceOf({{ComputeSet{{many, one}}}}).total().value(), 633u);  // 33 + 6 * 100
  EXPECT_EQ(PriceOf({{ComputeSet{{one}}, 3}}).total().value(), 3 * 633u + 2 * 50u);  // F18
  EXPECT_EQ(PricePlan({}, {}).compute.value(), 50u);                                 // F18
}

// 40 cycles for each phase and 4 bytes a cycle; the busiest tile decides.
TEST(PricePlanTest, TileExchange) {
  const Cost cost = PriceOf({{TileExchange{{{1471, 100}, {1, 1002}}}, 2}});
  EXPECT_EQ(cost.exchange.value(), 2 * (40 + 251u));
  EXPECT_EQ(cost.sync.value(), 2 * 126u);
  EXPECT_EQ(cost.compute.value(), 0u);
}

// 2 us for the request, and 32 tiles with 0.1066 GB/s each.
TEST(PricePlanTest, StreamTransfer) {
  const Cost cost = PriceOf({{StreamTransfer{.to_host = true, .bytes = 1'000'000, .tiles = 32}}});
  EXPECT_EQ(cost.exchange.value(), 392'553u);  // 1.33e9 (1e6 / 3.4112e9 + 2e-6)
  EXPECT_EQ(cost.sync.value(), 600 + 483u);    // external; 0.363 us with the host
  EXPECT_EQ(cost.to_host.value(), 1'000'000u);
  EXPECT_EQ(cost.from_host.value(), 0u);
}

// 2 us for the request, and 7.2 GB/s.
TEST(PricePlanTest, RemoteTransfer) {
  for (const bool store : {false, true}) {
    const Cost cost = PriceOf({{RemoteTransfer{.store = store, .bytes = 1'000'000}}}) * 2;
    EXPECT_EQ(cost.exchange.value(), 2 * 187'383u);  // 1.33e9 (1e6 / 7.2e9 + 2e-6)
    EXPECT_EQ(cost.sync.value(), 2 * 600u);
    EXPECT_EQ(cost.with_streaming_memory, cost.exchange + cost.sync);
    EXPECT_EQ(cost.from_streaming_memory.value(), store ? 0 : 2'000'000u);
    EXPECT_EQ(cost.to_streaming_memory.value(), store ? 2'000'000u : 0);
    EXPECT_EQ((cost.from_host + cost.to_host).value(), 0u);
  }
}

// Each IPU counts what it sends itself.
TEST(PricePlanTest, BytesOverLinksAreThoseOfTheSender) {
  const std::vector<InterIpuMove> moves = {{1000, 0, 1}, {10, 1, 0}, {100, 0, 2}};
  const uint64_t sent[] = {1100, 10, 0};
  for (uint32_t ipu = 0; ipu < 3; ++ipu)
    EXPECT_EQ(PriceOf({{InterIpuExchange{moves, ipu}}}).over_ipu_links.value(), sent[ipu]);
}

// The four links of a pair carry 53.12 GB/s.
TEST(PricePlanTest, InterIpuExchange) {
  const Cost cost = PriceOf({{InterIpuExchange{{{1'000'000, 0, 1}}}}});
  EXPECT_EQ(cost.exchange.value(), 200 + 25'038u);
  EXPECT_EQ(cost.sync.value(), 600u);
}

// Three steps of four replicas.
TEST(PricePlanTest, RingPhase) {
  RingPhase ring{.replicas = 4, .bytes = 3e6, .synced_ipus = 4};
  Cost cost = PriceOf({{ring}});
  EXPECT_EQ(cost.exchange.value(), 3 * 200 + 75'173u);  // 1.33e9 (3e6 / 53.12e9 + 3 * 15e-9)
  EXPECT_EQ(cost.sync.value(), 3 * 600u);
  // A gateway's ports give an IPU 5.3125 GB/s, and a hop takes 2 us, there and back for a sync.
  ring.links = RingPhase::Links::kGateway;
  cost = PriceOf({{ring}});
  EXPECT_EQ(cost.exchange.value(), 3 * 200 + 759'039u);  // 1.33e9 (3e6 / 5.3125e9 + 3 * 2e-6)
  EXPECT_EQ(cost.sync.value(), 3 * (600 + 5'320u));
}

}  // namespace
}  // namespace vpod::model
