#include "device/base/object_id.h"

#include <gtest/gtest.h>

#include <string>

namespace vpod::base {
namespace {

TEST(CheckObjectIdTest, TakesTheStylesInUse) {
  for (const std::string good : {"p", "ag.13.01", "c64_1-16", "2xPOD64", "slurm_2657", "0"})
    EXPECT_TRUE(CheckObjectId(good).ok()) << good;
  EXPECT_TRUE(CheckObjectId(std::string(63, 'x')).ok());
}

TEST(CheckObjectIdTest, RefusesWhatScriptsCannotCutAndNamesTheRule) {
  for (const std::string bad : {"", "a b", "a|b", "-a", ".a", "_a", "a/b", "ä", "a\n"}) {
    EXPECT_EQ(CheckObjectId(bad).message(),
              "Invalid id '" + bad +
                  "'. Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin with a letter "
                  "or digit.");
  }
  EXPECT_FALSE(CheckObjectId(std::string(64, 'x')).ok());
  EXPECT_FALSE(CheckObjectId(std::string("a\0b", 3)).ok());
}

}  // namespace
}  // namespace vpod::base
