// The exchange tests on the IPUModel: sound, and with a flipped bit.
#include "tools/gc-exchangetest/exchange.h"

#include <gtest/gtest.h>

#include "client/session/ipu_model.h"
#include "tools/device_check/faulty_device.h"

namespace vpod::tools {
namespace {

std::unique_ptr<session::Device> Model(uint32_t replicas) {
  auto device = session::CreateIpuModel({.replicas = replicas, .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(ExchangeTest, PassesOnSoundDevices) {
  const auto report = TestExchange(Model(2));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->fault.has_value());
  EXPECT_GT(report->seconds, 0);
  const Rows& details = report->details;
  ASSERT_EQ(details.size(), 5u);
  EXPECT_EQ(details[0].second, "2");     // IPUs
  EXPECT_EQ(details[1].second, "1472");  // tiles
  EXPECT_EQ(details[2].second, "16");    // rounds
  EXPECT_EQ(details[3].second, "4096");  // bytes
}

// Runs: learn, then load, move, store for each of two patterns.
TEST(ExchangeTest, NamesTileAndAddressOfAFlippedBit) {
  for (const int run : {3, 6}) {
    const auto report = TestExchange(std::make_unique<FaultyDevice>(Model(1), run));
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->fault.has_value());
    EXPECT_EQ(report->fault->ipu, 0u);
    EXPECT_EQ(report->fault->tile, 1471u);
    EXPECT_EQ(report->fault->address, 0x54000u + 63 * 4);
    EXPECT_EQ(report->fault->found ^ report->fault->expected, 0x10000000u);
  }
}

TEST(ExchangeWriteTest, PassesOnSoundDevices) {
  const auto report = TestExchangeWrite(Model(2));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->fault.has_value());
  // A broadcast of 256 bytes: 4 bytes a cycle and 40 cycles (spec/hardware.md 2.5, F10), 32 times.
  EXPECT_EQ(report->details[4].second, "3328");
}

TEST(ExchangeWriteTest, NamesTileAndAddressOfAFlippedBit) {
  const auto report = TestExchangeWrite(std::make_unique<FaultyDevice>(Model(1), 96));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->fault.has_value());
  EXPECT_EQ(report->fault->tile, 1471u);
  EXPECT_EQ(report->fault->address, 0x54000u + 63 * 4);
}

}  // namespace
}  // namespace vpod::tools
