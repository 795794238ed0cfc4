#include "device/base/id_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace vpod::base {
namespace {

TEST(IdOrderTest, CountsAsPeopleDo) {
  const std::vector<std::string> ordered = {"",
                                            "2-a",
                                            "10-a",
                                            "ag.2.9",
                                            "ag.2.10",
                                            "ag.10.1",
                                            "ag02",
                                            "ag2",
                                            "ag2a",
                                            "ag10",
                                            "agx",
                                            "b1",
                                            "p",
                                            "p0",
                                            "p99999999999999999999999",
                                            "p100000000000000000000000"};
  for (size_t a = 0; a < ordered.size(); ++a) {
    for (size_t b = 0; b < ordered.size(); ++b)
      EXPECT_EQ(IdOrder()(ordered[a], ordered[b]), a < b) << ordered[a] << " " << ordered[b];
  }
}

}  // namespace
}  // namespace vpod::base
