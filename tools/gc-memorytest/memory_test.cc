// The memory test on the IPUModel: sound, with a stuck bit, and its size against the memory model.
#include "tools/gc-memorytest/memory.h"

#include <gtest/gtest.h>

#include "client/session/ipu_model.h"
#include "tools/device_check/faulty_device.h"

namespace vpod::tools {
namespace {

std::unique_ptr<session::Device> Model() {
  auto device = session::CreateIpuModel({.compute_threads = 1});
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(MemoryTest, PassesOnASoundDevice) {
  const auto report = TestMemory(Model(), 0, 2);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->fault.has_value());
  // 2 patterns, there and back, at 7.2 GB/s (spec/hardware.md F2).
  EXPECT_NEAR(report->seconds, 4 * 2 * 16384.0 * 1472 / 7.2e9, 1e-4);
}

// Runs: 2 writes, 2 reads, 2 writes, 2 reads. The fault is in the last word of the last tile.
TEST(MemoryTest, NamesTileAndAddressOfAFlippedBit) {
  for (const auto& [run, address, expected] : {std::tuple{2, 0x54000u + 16380, 1471u << 18 | 4095},
                                               {3, 0x54000u + 2 * 16384 - 4, 1471u << 18 | 8191},
                                               {6, 0x54000u + 16380, ~(1471u << 18 | 4095)}}) {
    const auto report = TestMemory(std::make_unique<FaultyDevice>(Model(), run), 5, 2);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->fault.has_value()) << run;
    EXPECT_EQ(report->fault->ipu, 5u);
    EXPECT_EQ(report->fault->tile, 1471u);
    EXPECT_EQ(report->fault->address, address);
    EXPECT_EQ(report->fault->expected, expected);
    EXPECT_EQ(report->fault->found, expected ^ 0x10000000u);
  }
}

}  // namespace
}  // namespace vpod::tools
