#include "server/agent/link_arrivals.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vpod::agent {
namespace {

TEST(LinkArrivalsTest, WhatLandsIsHandedOverOnce) {
  LinkArrivals arrivals;
  const std::string name = *arrivals.Expect(4);
  const fabric::Landing landing = arrivals.Land(name, 4);
  ASSERT_NE(landing.buffer, nullptr);
  EXPECT_EQ(arrivals.Land(name, 4).buffer, nullptr);  // no second message under the name
  std::memcpy(landing.buffer, "data", 4);
  landing.landed(absl::OkStatus());
  const auto memory = arrivals.Take(name);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(std::memcmp((*memory)->data(), "data", 4), 0);
  EXPECT_TRUE(absl::IsNotFound(arrivals.Take(name).status()));
}

TEST(LinkArrivalsTest, WhatIsNotExpectedGoesNowhere) {
  LinkArrivals arrivals;
  EXPECT_EQ(arrivals.Land("unknown", 4).buffer, nullptr);
  const std::string name = *arrivals.Expect(4);
  EXPECT_EQ(arrivals.Land(name, 5).buffer, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(arrivals.Take(name).status()));
}

TEST(LinkArrivalsTest, RoomHasBounds) {
  LinkArrivals arrivals;
  EXPECT_EQ(arrivals.Expect(0).status().message(), "bytes is 0, must be 1 to 1048576");
  EXPECT_FALSE(arrivals.Expect(LinkArrivals::kMostBytes + 1).ok());
  for (size_t i = 0; i < LinkArrivals::kMost; ++i) ASSERT_TRUE(arrivals.Expect(1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(arrivals.Expect(1).status()));
}

}  // namespace
}  // namespace vpod::agent
