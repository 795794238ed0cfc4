#include "device/engine/kernels/loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace vpod::engine {
namespace {

using program::Dims;

// The positions of all operands, element by element.
std::vector<std::vector<int64_t>> Walk(const Loop& loop, size_t begin, size_t end) {
  std::vector<std::vector<int64_t>> positions(loop.steps.size());
  loop.ForBlocks(begin, end, [&](const auto& at, size_t n) {
    EXPECT_LE(n, kElementsOfABlock);
    for (size_t o = 0; o < positions.size(); ++o) {
      for (size_t i = 0; i < n; ++i)
        positions[o].push_back(at[o] + static_cast<int64_t>(i) * loop.steps[o]);
    }
  });
  return positions;
}

TEST(LoopTest, DenseTensorsAreOneRow) {
  const Loop loop = PlanLoop({3, 5, 7}, {{35, 7, 1}, {35, 7, 1}});
  EXPECT_EQ(loop.length, 105u);
  EXPECT_EQ(loop.rows, 1u);
}

TEST(LoopTest, GoesInTheOrderOfTheFirstOperandInMemory) {
  // Logical [2,3,4,5], stored with the second axis innermost; the other operand by rows.
  const Loop loop = PlanLoop({2, 3, 4, 5}, {{60, 1, 15, 3}, {60, 20, 5, 1}});
  const auto positions = Walk(loop, 0, 120);
  std::vector<int64_t> ascending(120);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(positions[0], ascending);
  for (int64_t i = 0; i < 120; ++i) {
    const int64_t n = i / 60, hw = i / 3 % 20, c = i % 3;
    EXPECT_EQ(positions[1][static_cast<size_t>(i)], n * 60 + c * 20 + hw);
  }
}

TEST(LoopTest, RangesMakeUpTheWhole) {
  const Loop loop = PlanLoop({7, 3001}, {{3001, 1}, {0, 1}, {1, 0}});
  const auto all = Walk(loop, 0, 7 * 3001);
  for (size_t cut : {1u, 2999u, 3001u, 10000u}) {
    auto first = Walk(loop, 0, cut);
    const auto second = Walk(loop, cut, 7 * 3001);
    for (size_t o = 0; o < 3; ++o) {
      first[o].insert(first[o].end(), second[o].begin(), second[o].end());
      EXPECT_EQ(first[o], all[o]);
    }
  }
}

TEST(LoopTest, AScalarIsOneElement) {
  const Loop loop = PlanLoop({}, {{}, {}});
  EXPECT_EQ(Walk(loop, 0, 1), (std::vector<std::vector<int64_t>>{{0}, {0}}));
}

// Every float16 number survives; what F16C and the compiler's conversions make of a number is the
// same, in blocks of eight and in the rest.
TEST(ConversionTest, HalvesAreRoundedOnce) {
  std::vector<_Float16> halves(65536), back(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    std::memcpy(&halves[bits], &pattern, sizeof(pattern));
  }
  std::vector<float> floats(65536);
  FloatsOfHalves(halves.data(), floats.data(), halves.size());
  HalvesOfFloats(floats.data(), back.data(), floats.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    if (std::isnan(floats[i])) continue;
    EXPECT_EQ(std::memcmp(&halves[i], &back[i], 2), 0) << i;
  }
  // Ties go to even, what is too large becomes infinity.
  const std::vector<float> values = {2049, 2051, -2049, 65519, 65520, 1e-8f, 6.1e-5f, 0.1f, 3};
  std::vector<_Float16> rounded(values.size());
  HalvesOfFloats(values.data(), rounded.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(static_cast<float>(rounded[i]), static_cast<float>(static_cast<_Float16>(values[i])));
  EXPECT_EQ(static_cast<float>(rounded[0]), 2048);
  EXPECT_TRUE(std::isinf(static_cast<float>(rounded[4])));
}

// Whatever the number of elements: some are converted eight at a time.
TEST(ConversionTest, ShortRowsAreConvertedAsLongOnes) {
  for (size_t n = 0; n < 20; ++n) {
    std::vector<float> floats(n + 1, -1), back(n + 1, -1);
    std::vector<_Float16> halves(n + 1, static_cast<_Float16>(-1));
    for (size_t i = 0; i < n; ++i) floats[i] = 1.0f / static_cast<float>(3 * i + 7);
    HalvesOfFloats(floats.data(), halves.data(), n);
    FloatsOfHalves(halves.data(), back.data(), n);
    for (size_t i = 0; i < n; ++i)
      EXPECT_EQ(back[i], static_cast<float>(static_cast<_Float16>(floats[i]))) << i << " of " << n;
    EXPECT_EQ(static_cast<float>(halves[n]), -1);
    EXPECT_EQ(back[n], -1);
  }
}

}  // namespace
}  // namespace vpod::engine
