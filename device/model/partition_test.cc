#include "device/model/partition.h"

#include <gtest/gtest.h>

namespace vpod::model {
namespace {

// spec/hardware.md 2.2: float16 [N,16] x [16,16] on each tile.
TEST(PartitionTest, AmpCurve) {
  const std::pair<uint64_t, uint64_t> measured[] = {
      {16, 402},   {32, 461},   {64, 584},    {96, 716},    {128, 845},
      {256, 1352}, {512, 2381}, {1024, 4424}, {1536, 6476}, {2048, 8525}};
  for (const auto& [rows, cycles] : measured) {
    const PlannedConvolution product{
        .batch = rows, .inputs = 16, .outputs = 16, .half_partials = true};
    EXPECT_NEAR(VertexCycles(product, Partition()), cycles, rows == 16 ? 12 : 2) << rows;
  }
}

struct Check {
  const char* name;
  PlannedConvolution convolution;
  uint64_t total, vertex;
  uint64_t tiles;
};

// The unit checks of spec/planner.md 6, with their splits.
TEST(PartitionTest, AgreesWithThePrototype) {
  constexpr uint64_t kPixels = uint64_t{20} * 56 * 56;
  const Check checks[] = {
      {"3x3 of 64 to 64, 56x56",
       {.batch = 20, .inputs = 64, .outputs = 64, .field = {56, 56}, .kernel = {3, 3}},
       55837,
       38891,
       20 * 3 * 3 * 2 * 4},
      {"1x1 of 64 to 256, 56x56",
       {.batch = kPixels, .inputs = 64, .outputs = 256},
       22360,
       14580,
       367 * 4},
      {"3x3 of 512 to 512, 7x7",
       {.batch = 20, .inputs = 512, .outputs = 512, .field = {7, 7}, .kernel = {3, 3}},
       68679,
       51763,
       4 * 11 * 32},
      {"weights of 3x3 of 64 to 64, 56x56",
       {.batch = 64,
        .inputs = 20,
        .outputs = 64,
        .field = {3, 3},
        .kernel = {56, 56},
        .image = PlannedConvolution::Place::kInOtherOrder,
        .weights = PlannedConvolution::Place::kInOtherOrder},
       98434,
       69172,
       7 * 7 * 3 * 5 * 2},
      {"weights of 1x1 of 64 to 256, 56x56",
       {.batch = 64,
        .inputs = kPixels,
        .outputs = 256,
        .image = PlannedConvolution::Place::kInOtherOrder,
        .weights = PlannedConvolution::Place::kInOtherOrder},
       57447,
       20975,
       357 * 4}};
  for (Check check : checks) {
    check.convolution.half_partials = true;
    check.convolution.memory_proportion = 0.15;
    const auto [partition, cost] = FindPartition(check.convolution);
    EXPECT_NEAR(cost.total_cycles(), check.total, 0.03 * check.total) << check.name;
    EXPECT_NEAR(cost.vertex_cycles, check.vertex, 5) << check.name;
    EXPECT_EQ(partition.tiles(), check.tiles) << check.name;
    EXPECT_EQ(cost.total_cycles(), PricePlan({StepsOf(cost, partition)}, {}).total().value());
    EXPECT_LE(cost.temporary_bytes, 0.15 * 638976) << check.name;
  }
}

// Nothing is exchanged if each tile has what it needs; serial parts follow one another.
TEST(PartitionTest, TotalIsThePriceOfTheSteps) {
  const PlannedConvolution product{.groups = 1472,
                                   .batch = 64,
                                   .inputs = 16,
                                   .outputs = 16,
                                   .image = PlannedConvolution::Place::kInPlace,
                                   .weights = PlannedConvolution::Place::kInPlace};
  const auto [in_place, cost] = FindPartition(product);
  EXPECT_EQ(cost.operand_bytes, 0u);
  EXPECT_EQ(cost.total_cycles(), PricePlan({StepsOf(cost, in_place)}, {}).total().value());
  Partition serial;
  serial.serial_outputs = 4;
  const PartitionCost parts = CostOf({.batch = 64, .inputs = 32, .outputs = 256}, serial);
  EXPECT_EQ(parts.total_cycles(), PricePlan({StepsOf(parts, serial)}, {}).total().value());
}

}  // namespace
}  // namespace vpod::model
