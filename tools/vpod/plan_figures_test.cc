#include "tools/vpod/plan_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

using model::Bytes;
using model::Cycles;
using testing::HasSubstr;

TEST(PlanFiguresTest, TrafficWithStreamingMemoryIsShown) {
  model::Timeline timeline;
  timeline.ipus.push_back({.cost = {.compute = Cycles(500),
                                    .exchange = Cycles(400),
                                    .sync = Cycles(100),
                                    .from_streaming_memory = Bytes(3'000'000),
                                    .to_streaming_memory = Bytes(1'000'000),
                                    .with_streaming_memory = Cycles(250)}});
  const std::vector<Bytes> memory = {Bytes(0)};
  const std::vector<plan::PhaseCycles> phases = {{.forward = Cycles(300), .backward = Cycles(600)}};
  const std::string table = IpuTables({timeline, memory, phases});
  EXPECT_THAT(table, HasSubstr("| Streaming memory | Streaming memory (MB) |"));
  EXPECT_THAT(table, HasSubstr("| 25.0%            | 4.000                 |"));
  const auto json = IpuJson({timeline, memory, phases});
  EXPECT_THAT(table, HasSubstr("| 30.0%   | 60.0%    |"));
  EXPECT_EQ(json[0]["streaming_memory_cycles"], 250);
  EXPECT_EQ(json[0]["backward_cycles"], 600);
  EXPECT_EQ(json[0]["from_streaming_memory_bytes"], 3'000'000);
  EXPECT_EQ(json[0]["to_streaming_memory_bytes"], 1'000'000);
}

}  // namespace
}  // namespace vpod::tools
