#include "device/engine/unit_barrier.h"

#include <gtest/gtest.h>

namespace vpod::engine {
namespace {

TEST(UnitBarrierTest, TheLastOneResumesAllInEachRound) {
  UnitBarrier barrier(3);
  int resumed = 0;
  for (int round = 1; round <= 2; ++round) {
    for (int unit = 0; unit < 2; ++unit) barrier.Arrive([&] { ++resumed; });
    EXPECT_EQ(resumed, 3 * (round - 1));
    barrier.Arrive([&] { ++resumed; });
    EXPECT_EQ(resumed, 3 * round);
  }
}

TEST(UnitBarrierTest, NobodyWaitsOnceItIsOpen) {
  UnitBarrier barrier(3);
  int resumed = 0;
  barrier.Arrive([&] { ++resumed; });
  barrier.Open();
  EXPECT_EQ(resumed, 1);
  barrier.Arrive([&] { ++resumed; });
  EXPECT_EQ(resumed, 2);
}

}  // namespace
}  // namespace vpod::engine
