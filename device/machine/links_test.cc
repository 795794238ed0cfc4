#include "device/machine/links.h"

#include <gtest/gtest.h>

namespace vpod::machine {
namespace {

TEST(LinksTest, CountsBytes) {
  Links links;
  EXPECT_EQ(links.Read(3).counters.tx_bytes, 0u);
  EXPECT_FALSE(links.touched());
  links.Count({{3, 100, 50}, {4, 1, 2}});
  links.Count({{3, 11, 0}});
  EXPECT_EQ(links.Read(3).counters.tx_bytes, 111u);
  EXPECT_EQ(links.Read(3).counters.rx_bytes, 50u);
  EXPECT_EQ(links.Read(4).counters.rx_bytes, 2u);
  EXPECT_EQ(links.Read(3).state(), "up");
  EXPECT_EQ(links.Read(3).lanes(), 8u);
  EXPECT_TRUE(links.touched());
  links.Reset();
  EXPECT_EQ(links.Read(3).counters.tx_bytes, 0u);
  EXPECT_FALSE(links.touched());
}

TEST(LinksTest, ErrorsRiseWithTraffic) {
  Links links;
  links.SetFault(13, {.correctable_errors_per_gb = 4});
  EXPECT_EQ(links.Read(13).state(), "degraded");
  EXPECT_EQ(links.Read(13).lanes(), 4u);
  // A quarter of a gigabyte brings an error, in however many pieces.
  for (int i = 0; i < 1000; ++i) links.Count({{13, 500'000, 500'000}, {23, 500'000, 500'000}});
  EXPECT_EQ(links.Read(13).counters.correctable_errors, 4u);
  EXPECT_EQ(links.CorrectableErrors(1), 4u);
  EXPECT_EQ(links.CorrectableErrors(2), 0u);
  links.SetFault(13, {});
  links.Count({{13, 1'000'000'000, 0}});
  EXPECT_EQ(links.CorrectableErrors(1), 4u);
}

TEST(LinksTest, DataPassIntactUnlessTheLinkCorrupts) {
  const std::vector<std::byte> sent(64, std::byte{0x55});
  std::vector<std::byte> data = sent;
  Links links;
  EXPECT_TRUE(links.Send(3, absl::MakeSpan(data)));
  EXPECT_TRUE(links.Receive(3, absl::MakeSpan(data)));
  EXPECT_EQ(data, sent);
  EXPECT_EQ(links.Read(3).counters.tx_bytes, 64u);
  EXPECT_EQ(links.Read(3).counters.rx_bytes, 64u);

  links.SetFault(3, {.corrupts = true});
  EXPECT_EQ(links.Read(3).state(), "corrupting");
  EXPECT_EQ(links.Read(3).lanes(), 8u);
  EXPECT_TRUE(links.Send(3, absl::MakeSpan(data)));
  EXPECT_NE(data, sent);
  EXPECT_TRUE(links.Receive(3, absl::MakeSpan(data)));
  EXPECT_NE(data, sent);  // two bad ends do not heal each other
  EXPECT_EQ(links.Read(3).counters.uncorrectable_errors, 2u);

  links.SetFault(3, {.down = true});
  data = sent;
  EXPECT_FALSE(links.Send(3, absl::MakeSpan(data)));
  EXPECT_FALSE(links.Receive(3, absl::MakeSpan(data)));
  EXPECT_EQ(links.Read(3).counters.tx_bytes, 128u);
}

TEST(LinksTest, ASwappedCableIsAStateOfItsOwn) {
  Links links;
  links.SetFault(3, {.swapped = true});
  EXPECT_EQ(links.Read(3).state(), "swapped");
  EXPECT_EQ(links.Read(3).lanes(), 8u);
}

TEST(LinksTest, DownIsKnownUntilCleared) {
  Links links;
  EXPECT_FALSE(links.Read(7).fault.breaks());
  links.SetFault(40, {.down = true});
  links.SetFault(7, {.down = true});
  links.SetFault(7, {.down = true});
  EXPECT_TRUE(links.Read(40).fault.breaks());
  EXPECT_EQ(links.Read(7).state(), "down");
  EXPECT_EQ(links.Read(7).lanes(), 0u);
  EXPECT_EQ(links.Read(7).counters.uncorrectable_errors, 1u);
  links.SetFault(7, {});
  EXPECT_FALSE(links.Read(7).fault.breaks());
  EXPECT_TRUE(links.Read(40).fault.breaks());
}

}  // namespace
}  // namespace vpod::machine
