// The exchange tests on the IPUModel: sound, and with a flipped bit.
#include "tools/gc-exchangetest/exchange.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
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
  // 256 bytes a tile: 4 a cycle, 40 cycles and a sync of 126 (spec/hardware.md 2.5, 2.6, F10).
  EXPECT_EQ(details[4].second, absl::StrCat(16 * (256 / 4 + 40 + 126)));
}

// Runs: load, stay, move, store for each of two patterns.
TEST(ExchangeTest, NamesTileAndAddressOfAFlippedBit) {
  for (const int run : {3, 7}) {
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
  EXPECT_EQ(report->details[4].second, absl::StrCat(32 * (256 / 4 + 40 + 126)));
}

// Runs: learn, then load, stay, write, store in each of 32 rounds.
TEST(ExchangeWriteTest, NamesTileAndAddressOfAFlippedBit) {
  const auto report = TestExchangeWrite(std::make_unique<FaultyDevice>(Model(1), 128));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->fault.has_value());
  EXPECT_EQ(report->fault->tile, 1471u);
  EXPECT_EQ(report->fault->address, 0x54000u + 63 * 4);
}

}  // namespace
}  // namespace vpod::tools
