#include "device/arch/hardware.h"

#include <gtest/gtest.h>

namespace vpod::arch {
namespace {

TEST(HardwareTest, MemoryOfAnIpuIs897MiB) { EXPECT_EQ(kIpuMemory.value(), 897ull << 20); }

TEST(HardwareTest, MachineTypes) {
  EXPECT_EQ(ClockText(*FindMachineType("m2000")), "1330MHz");
  EXPECT_EQ(ClockText(*FindMachineType("bow2000")), "1850MHz");
  EXPECT_EQ(FindMachineType("m3000").status().message(),
            "unknown machine type 'm3000'; give m2000 or bow2000");
}

// spec/hardware.md 2.6: at 1.33 GHz the formula gives 80, 200 and 679 cycles for 4, 16 and 64 IPUs.
TEST(HardwareTest, ExternalSyncIsAtLeast600Cycles) {
  EXPECT_EQ(ExternalSyncCycles(4, 1.33e9).value(), 600u);
  EXPECT_EQ(ExternalSyncCycles(16, 1.33e9).value(), 600u);
  EXPECT_EQ(ExternalSyncCycles(64, 1.33e9).value(), 679u);
}

// spec/hardware.md 3.2: 53.1 GB/s on the pair group, 26.6 GB/s up, down and across.
TEST(HardwareTest, LadderBandwidth) {
  EXPECT_NEAR(IpuLinkBytesPerSecond(2, 3), 53.1e9, 0.1e9);
  EXPECT_NEAR(IpuLinkBytesPerSecond(0, 2), 26.6e9, 0.1e9);
  EXPECT_NEAR(IpuLinkBytesPerSecond(0, 3), 26.6e9, 0.1e9);
}

// A column of the ladder carries one ring for each rung between two members.
TEST(HardwareTest, RingsShareTheLinksTheyPass) {
  EXPECT_NEAR(RingBytesPerSecond(1), 53.1e9, 0.1e9);
  EXPECT_EQ(RingBytesPerSecond(2), RingBytesPerSecond(1));
  EXPECT_EQ(RingBytesPerSecond(4), RingBytesPerSecond(1) / 2);
  EXPECT_EQ(RingBytesPerSecond(64), RingBytesPerSecond(1) / 32);
}

}  // namespace
}  // namespace vpod::arch
