#include "device/arch/device_id.h"

#include <gtest/gtest.h>

namespace vpod::arch {
namespace {

TEST(DeviceIdTest, FourIpusHaveSevenDevices) {
  EXPECT_EQ(NumDeviceIds(4), 7u);
  EXPECT_EQ(*IpusOfDevice(4, 3), (IpuRange{3, 1}));
  EXPECT_EQ(*IpusOfDevice(4, 4), (IpuRange{0, 2}));
  EXPECT_EQ(*IpusOfDevice(4, 5), (IpuRange{2, 2}));
  EXPECT_EQ(*IpusOfDevice(4, 6), (IpuRange{0, 4}));
}

TEST(DeviceIdTest, WholeSixtyFourIpuDeviceIs126) {
  EXPECT_EQ(*DeviceOfIpus(64, {0, 64}), 126u);
  EXPECT_EQ(*IpusOfDevice(64, 126), (IpuRange{0, 64}));
}

TEST(DeviceIdTest, SixteenIpuGroupsStartWhereTheManualSays) {
  EXPECT_EQ(*DeviceOfIpus(16, {0, 2}), 16u);
  EXPECT_EQ(*DeviceOfIpus(16, {0, 4}), 24u);
  EXPECT_EQ(*DeviceOfIpus(16, {0, 8}), 28u);
  EXPECT_EQ(*DeviceOfIpus(16, {8, 8}), 29u);
  EXPECT_EQ(*DeviceOfIpus(16, {0, 16}), 30u);
}

TEST(DeviceIdTest, IdsAndRangesAreInverse) {
  for (uint32_t n = 1; n <= 256; n *= 2) {
    for (uint32_t id = 0; id < NumDeviceIds(n); ++id) {
      EXPECT_EQ(*DeviceOfIpus(n, *IpusOfDevice(n, id)), id);
    }
  }
}

TEST(DeviceIdTest, RefusesIpusThatAreNotADevice) {
  EXPECT_EQ(IpusOfDevice(4, 7).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(DeviceOfIpus(4, {1, 2}).ok());
  EXPECT_FALSE(DeviceOfIpus(4, {0, 3}).ok());
  EXPECT_FALSE(DeviceOfIpus(4, {0, 8}).ok());
  EXPECT_FALSE(DeviceOfIpus(4, {0, 0}).ok());
}

TEST(DeviceIdTest, BoardsOfAMachine) {
  EXPECT_EQ(BoardSerial(0, 3), "0100.0002.8204521");
  EXPECT_EQ(BoardSerial(0, 2), BoardSerial(0, 3));
  EXPECT_EQ(BoardSerial(0, 1), "0100.0001.8204521");
  EXPECT_NE(BoardSerial(0, 3), BoardSerial(1, 3));
}

}  // namespace
}  // namespace vpod::arch
