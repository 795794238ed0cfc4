#include "client/compiler/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace vpod::compiler {
namespace {

uint64_t Aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

bool LiveTogether(const Storage& a, const Storage& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Everything PlaceStorage promises of its result.
void ExpectSound(const std::vector<Storage>& blocks, uint64_t base, uint64_t end) {
  uint64_t most = base;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Storage& a = blocks[i];
    EXPECT_EQ(a.offset % 64, 0u) << i;
    EXPECT_GE(a.offset, base) << i;
    most = std::max(most, a.offset + Aligned(a.bytes));
    for (size_t j = 0; j < i; ++j) {
      const Storage& b = blocks[j];
      if (!LiveTogether(a, b)) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
          << "blocks " << i << " and " << j << " are in use together at " << a.offset << " and "
          << b.offset;
    }
  }
  EXPECT_EQ(end, most);
}

// The bytes that are in use at the busiest step: no plan needs less.
uint64_t LowerBound(const std::vector<Storage>& blocks) {
  uint64_t most = 0;
  for (const Storage& at : blocks) {
    uint64_t sum = 0;
    for (const Storage& block : blocks) {
      if (block.first <= at.first && at.first <= block.last) sum += Aligned(block.bytes);
    }
    most = std::max(most, sum);
  }
  return most;
}

TEST(MemoryPlanTest, NothingTakesNothing) {
  std::vector<Storage> blocks;
  EXPECT_EQ(PlaceStorage(blocks, 128), 128u);
}

TEST(MemoryPlanTest, DisjointLifetimesShareBytes) {
  std::vector<Storage> blocks{{100, 0, 1}, {60, 2, 3}, {128, 4, 4}};
  EXPECT_EQ(PlaceStorage(blocks, 0), 128u);
  for (const Storage& block : blocks) EXPECT_EQ(block.offset, 0u);
}

// An instruction reads its inputs while it writes its output: both ends of a lifetime count.
TEST(MemoryPlanTest, LifetimesThatMeetInAStepDoNotShare) {
  std::vector<Storage> blocks{{64, 0, 2}, {64, 2, 3}};
  EXPECT_EQ(PlaceStorage(blocks, 0), 128u);
  EXPECT_NE(blocks[0].offset, blocks[1].offset);
}

TEST(MemoryPlanTest, SmallBlocksFillTheGapsBetweenLargeOnes) {
  // The second block dies and leaves a gap of 192 bytes between the first and the third.
  std::vector<Storage> blocks{{256, 0, 9}, {192, 0, 4}, {128, 0, 9}, {64, 5, 9}, {65, 5, 9}};
  EXPECT_EQ(PlaceStorage(blocks, 0), 576u);
  ExpectSound(blocks, 0, 576);
}

TEST(MemoryPlanTest, StartsAtTheBase) {
  std::vector<Storage> blocks{{1, 0, 0}, {1, 0, 0}};
  EXPECT_EQ(PlaceStorage(blocks, 640), 768u);
  ExpectSound(blocks, 640, 768);
}

TEST(MemoryPlanTest, BlocksBeyondFourGigabytes) {
  const uint64_t big = uint64_t{3} << 30;
  std::vector<Storage> blocks{{big, 0, 1}, {big, 1, 2}, {big, 2, 3}};
  EXPECT_EQ(PlaceStorage(blocks, 0), 2 * big);
  ExpectSound(blocks, 0, 2 * big);
}

TEST(MemoryPlanTest, RandomBlocksNeverOverlapWhileBothAreInUse) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<Storage> blocks(random() % 60);
    const int steps = 1 + static_cast<int>(random() % 40);
    for (Storage& block : blocks) {
      // Sizes repeat, so that equal blocks occur; some are empty.
      block.bytes = random() % 4 == 0 ? random() % 3 * 64 : random() % 1000;
      block.first = static_cast<int>(random() % steps);
      block.last = std::min<int>(steps, block.first + static_cast<int>(random() % 10));
    }
    const uint64_t base = random() % 5 * 64;
    std::vector<Storage> again = blocks;
    const uint64_t end = PlaceStorage(blocks, base);
    ExpectSound(blocks, base, end);
    EXPECT_GE(end - base, LowerBound(blocks));

    EXPECT_EQ(PlaceStorage(again, base), end);
    for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].offset, again[i].offset);
  }
}

// A program of one IPU: each step reads the tensor before the one that it makes.
class PlanMemoryTest : public testing::Test {
 protected:
  // A tensor of 64 bytes.
  uint32_t Add(LoweredTensor tensor = {}) {
    tensor.type = {program::v1::FLOAT32, {16}};
    tensor.strides = {1};
    tensor.storage = ipu_.num_storages++;
    ipu_.tensors.push_back(tensor);
    return static_cast<uint32_t>(ipu_.tensors.size() - 1);
  }
  void Step(Section section, uint32_t input, uint32_t output) {
    LoweredStep step;
    step.instruction.mutable_copy();
    step.instruction.add_inputs(input);
    step.instruction.add_outputs(output);
    ipu_.sections[static_cast<int>(section)].push_back(step);
  }

  LoweredIpu ipu_;
};

TEST_F(PlanMemoryTest, VariablesLieWhereTheyAreAndOthersBehind) {
  const uint32_t weights = Add({.variable = "w"}), copy = Add();
  Step(Section::kBody, weights, copy);
  const MemoryPlan plan = PlanMemory(ipu_, {{"w", 0}}, /*base=*/64);
  EXPECT_EQ(plan.offsets, (std::vector<uint64_t>{0, 64}));
  EXPECT_EQ(plan.end, 128u);
}

TEST_F(PlanMemoryTest, TensorsDieAfterTheirLastUse) {
  const uint32_t a = Add(), b = Add(), c = Add(), d = Add();
  Step(Section::kBody, a, b);
  Step(Section::kBody, b, c);
  Step(Section::kUpdate, c, d);
  const MemoryPlan plan = PlanMemory(ipu_, {}, 0);
  EXPECT_EQ(plan.end, 128u);
  EXPECT_EQ(plan.offsets[a], plan.offsets[c]);
  EXPECT_EQ(plan.offsets[b], plan.offsets[d]);
}

TEST_F(PlanMemoryTest, WhatSetupMakesLivesToTheEnd) {
  const uint32_t constant = Add(), a = Add(), sum = Add({.wide_accumulator = true}), b = Add();
  Step(Section::kSetup, constant, constant);
  Step(Section::kBody, constant, a);
  Step(Section::kBody, a, sum);
  Step(Section::kReduce, sum, b);
  Step(Section::kUpdate, b, b);
  const MemoryPlan plan = PlanMemory(ipu_, {}, 0);
  // A wide accumulator has float64 elements.
  EXPECT_EQ(plan.end, 64u + 64u + 128u);
  EXPECT_EQ(plan.offsets[a], plan.offsets[b]);
}

TEST_F(PlanMemoryTest, ViewsLieInTheirStorage) {
  const uint32_t whole = Add(), copy = Add();
  LoweredTensor half = ipu_.tensors[whole];
  half.type.dims = {8};
  half.offset = 32;
  ipu_.tensors.push_back(half);
  Step(Section::kBody, whole, whole);
  Step(Section::kBody, 2, copy);
  const MemoryPlan plan = PlanMemory(ipu_, {}, 0);
  EXPECT_EQ(plan.offsets[2], plan.offsets[whole] + 32);
  EXPECT_NE(plan.offsets[copy], plan.offsets[whole]);
}

}  // namespace
}  // namespace vpod::compiler
