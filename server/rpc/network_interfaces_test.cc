#include "server/rpc/network_interfaces.h"

#include <gtest/gtest.h>

namespace vpod::rpc {
namespace {

TEST(NetworkInterfacesTest, SmallestNetworkThatHoldsTheAddressCounts) {
  const NetworkInterfaces interfaces({{"lo", 0x7f000001, 0xff000000},
                                      {"eth0", 0x0a010265, 0xffff0000},
                                      {"eth1", 0x0a010301, 0xffffff00}});
  EXPECT_EQ(interfaces.Find("127.10.0.1"), "lo");
  EXPECT_EQ(interfaces.Find("10.1.2.1"), "eth0");
  EXPECT_EQ(interfaces.Find("10.1.3.101"), "eth1");
  EXPECT_EQ(interfaces.Find("10.2.0.1"), "");
  EXPECT_EQ(interfaces.Find("rack1-lr1"), "");
  EXPECT_EQ(interfaces.Find(""), "");
}

TEST(NetworkInterfacesTest, LoopbackOfThisHostIsFound) {
  EXPECT_EQ(NetworkInterfaces::OfHost().Find("127.0.0.1"), "lo");
}

}  // namespace
}  // namespace vpod::rpc
