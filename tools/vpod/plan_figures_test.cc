#include "tools/vpod/plan_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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
  nlohmann::ordered_json row = {{"machine_type", "m2000"}, {"memory_bytes", 7}};
  AddDetails(row, {timeline, memory, phases}, "Out of memory");
  EXPECT_EQ(row["why_not"], "Out of memory");
  const auto json = row["ipus_of_a_replica"];
  EXPECT_THAT(table, HasSubstr("| 30.0%   | 60.0%    |"));
  EXPECT_EQ(json[0]["streaming_memory_cycles"], 250);
  EXPECT_EQ(json[0]["backward_cycles"], 600);
  EXPECT_EQ(json[0]["from_streaming_memory_bytes"], 3'000'000);
  EXPECT_EQ(json[0]["to_streaming_memory_bytes"], 1'000'000);
}

// Their figures take the places of the replica's.
TEST(PlanFiguresTest, CsvHasALineForEachIpuIfThereAreDetails) {
  model::Timeline timeline;
  timeline.ipus.resize(2);
  const std::vector<Bytes> memory = {Bytes(3), Bytes(7)};
  const std::vector<plan::PhaseCycles> phases = {{.forward = Cycles(300)},
                                                 {.forward = Cycles(600)}};
  nlohmann::ordered_json row = {{"machine_type", "m2000"}, {"memory_bytes", 7}};
  EXPECT_EQ(Csv({row, row}), "machine_type,memory_bytes\n\"m2000\",7\n\"m2000\",7\n");
  AddDetails(row, {timeline, memory, phases}, "Out of memory");
  const std::string text = Csv({row});
  EXPECT_THAT(text, testing::StartsWith("machine_type,memory_bytes,ipu,compute_cycles,"));
  EXPECT_THAT(text, HasSubstr("\n\"m2000\",3,0,0,0,0,0,300,0,"));
  EXPECT_THAT(text, HasSubstr("\n\"m2000\",7,1,0,0,0,0,600,0,"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

}  // namespace
}  // namespace vpod::tools
