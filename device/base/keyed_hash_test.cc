#include "device/base/keyed_hash.h"

#include <gtest/gtest.h>

namespace vpod::base {
namespace {

// Test cases 1 and 2 of RFC 4231.
TEST(KeyedHashTest, IsHmacWithSha256) {
  EXPECT_EQ(KeyedHashHex(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(KeyedHashHex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace vpod::base
