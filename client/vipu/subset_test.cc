#include "client/vipu/subset.h"

#include <gtest/gtest.h>

namespace vpod::vipu {
namespace {

using Positions = std::vector<uint32_t>;

TEST(SubsetTest, DevicesOfAnAlignedGroupAreThoseOfItsGcd) {
  // Four of sixteen IPUs: the pair 4 is the GCD's device 20, all four are its device 26.
  const Subset quad({8, 9, 10, 11}, 16);
  EXPECT_EQ(quad.num_devices(), 7u);
  EXPECT_EQ(*quad.GcdDevice(0), 8u);
  EXPECT_EQ(*quad.GcdDevice(4), 20u);
  EXPECT_EQ(*quad.GcdDevice(6), 26u);
  EXPECT_EQ(*quad.IpusOf(5), (arch::IpuRange{2, 2}));
  EXPECT_TRUE(absl::IsOutOfRange(quad.GcdDevice(7).status()));
}

TEST(SubsetTest, DevicesOfTheWholeGcdKeepTheirIds) {
  const Subset whole({0, 1, 2, 3}, 4);
  EXPECT_TRUE(whole.is_whole());
  for (uint32_t id = 0; id < 7; ++id) EXPECT_EQ(*whole.GcdDevice(id), id);
}

TEST(SubsetTest, OtherIpusAreUsedOneByOne) {
  for (const Positions& positions :
       {Positions{1, 2}, Positions{0, 3}, Positions{0, 1, 2}, Positions{0, 2}}) {
    const Subset subset(positions, 4);
    EXPECT_FALSE(subset.is_group());
    EXPECT_EQ(subset.num_devices(), positions.size());
    for (uint32_t id = 0; id < positions.size(); ++id)
      EXPECT_EQ(*subset.GcdDevice(id), positions[id]);
    const auto count = static_cast<uint32_t>(positions.size());
    EXPECT_TRUE(absl::IsOutOfRange(subset.GcdDevice(count).status()));
    EXPECT_TRUE(absl::IsOutOfRange(subset.IpusOf(count).status()));
  }
}

TEST(SubsetTest, OthersIpusHaveNoNumber) {
  const Subset subset({2, 3}, 4);
  EXPECT_EQ(subset.NumberOf(2), 0u);
  EXPECT_EQ(subset.NumberOf(3), 1u);
  EXPECT_EQ(subset.NumberOf(0), std::nullopt);
  EXPECT_EQ(subset.NumberOf(4), std::nullopt);
}

TEST(SubsetTest, PositionsOutsideTheGcdAreNoGroup) {
  EXPECT_FALSE(Subset({4, 5}, 4).is_group());
  EXPECT_FALSE(Subset({}, 0).is_group());
}

}  // namespace
}  // namespace vpod::vipu
