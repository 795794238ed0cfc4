#include "device/arch/soc_error.h"

#include <gtest/gtest.h>

namespace vpod::arch {
namespace {

TEST(SocErrorTest, OnlyWholeNamesAreErrors) {
  for (const char* name : {"SOC0PGMERR", "IPUSOFTERR", "MCUSOFTERR"})
    EXPECT_TRUE(IsSocError(name)) << name;
  for (const char* name : {"", "IPU", "SOFTERR", "ipusofterr", "IPUSOFTERR|", "IPUHARDERR",
                           "IPUSOFTERR|NMLINKDN0", "NOERROR"})
    EXPECT_FALSE(IsSocError(name)) << name;
}

TEST(SocErrorTest, OthersAreRefusedWithTheList) {
  EXPECT_TRUE(CheckSocError("error", "IPUSOFTERR").ok());
  EXPECT_EQ(
      CheckSocError("error", "IPUHARDERR\n").message(),
      "error is 'IPUHARDERR\xEF\xBF\xBD', must be one of SOC0PGMERR, SOC1PGMERR, ELINKPGMERR, "
      "HEXOVERFLOWERR, MCUPGMERR, SOC0SOFTERR, SOC1SOFTERR, ELINKSOFTERR, IPUSOFTERR, "
      "NMLINKDN0, NMLINKDN1, MCUSOFTERR");
}

}  // namespace
}  // namespace vpod::arch
