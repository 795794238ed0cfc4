#include "device/base/counted.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace vpod::base {
namespace {

TEST(CountedTest, OneIsSingular) {
  EXPECT_EQ(Counted(0, "GCD"), "0 GCDs");
  EXPECT_EQ(Counted(1, "GCD"), "1 GCD");
  EXPECT_EQ(Counted(2, "GCD"), "2 GCDs");
  EXPECT_EQ(Counted(UINT64_MAX, "IPU-Link domain"), "18446744073709551615 IPU-Link domains");
}

}  // namespace
}  // namespace vpod::base
