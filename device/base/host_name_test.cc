#include "device/base/host_name.h"

#include <gtest/gtest.h>

#include <string>

namespace vpod::base {
namespace {

TEST(HostTroubleTest, NamesAndAddressesHaveNone) {
  for (const std::string& host :
       {std::string("h"), std::string("ctrl-1.site_a.example"), std::string("10.1.2.1"),
        std::string("[fe80::1]"), std::string(253, 'h')})
    EXPECT_EQ(HostTrouble(host), "") << host;
}

TEST(HostTroubleTest, WhatNoResolverTakesIsNamedWithTheRule) {
  for (const std::string& host : {std::string(), std::string(254, 'h'), std::string("ö"),
                                  std::string("a b"), std::string("h/1"), std::string("a|b")}) {
    EXPECT_EQ(HostTrouble(host), "'" + host +
                                     "' is not a name or address; give 1 to 253 letters, digits "
                                     "and '._-:[]'");
  }
}

}  // namespace
}  // namespace vpod::base
