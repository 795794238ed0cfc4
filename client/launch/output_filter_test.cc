#include "client/launch/output_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace vpod::launch {
namespace {

std::string Filter(uint32_t rank, const std::vector<std::string>& chunks) {
  OutputFilter filter(rank);
  std::string text;
  for (const std::string& chunk : chunks) text += filter.Pass(chunk);
  return text + filter.Finish();
}

constexpr char kTwoRanks[] =
    "mpirun note\n"
    "[1,0]<stdout>:alpha\n[1,1]<stdout>:beta\n[1,1]<stderr>:bad\n[1,0]<stderr>:oops\n"
    "[1,0]<stdout>:10%\r[1,1]<stdout>:20%\r[1,0]<stdout>:30%\r[1,10]<stdout>:ten\n"
    "------\n[1,0]<stddiag>:diag [1,2] [1,x]<stdout>:\n[1,1]<stdout>:no end";
constexpr char kRankZero[] =
    "mpirun note\n"
    "[1,0]<stdout>:alpha\n[1,0]<stderr>:oops\n"
    "[1,0]<stdout>:10%\r[1,0]<stdout>:30%\r"
    "------\n[1,0]<stddiag>:diag [1,2] [1,x]<stdout>:\n";

TEST(OutputFilter, KeepsOneRankAndUntaggedLines) {
  EXPECT_EQ(Filter(0, {kTwoRanks}), kRankZero);
  EXPECT_EQ(Filter(1, {kTwoRanks}),
            "mpirun note\n[1,1]<stdout>:beta\n[1,1]<stderr>:bad\n[1,1]<stdout>:20%\r"
            "------\n[1,1]<stdout>:no end");
  EXPECT_EQ(Filter(7, {kTwoRanks}), "mpirun note\n------\n");
}

TEST(OutputFilter, TagsSplitAnywhereMakeNoDifference) {
  const std::string text = kTwoRanks;
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= std::min(text.size(), first + 20); ++second) {
      ASSERT_EQ(Filter(0, {text.substr(0, first), text.substr(first, second - first),
                           text.substr(second)}),
                kRankZero)
          << first << " " << second;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(Filter(0, bytes), kRankZero);
}

TEST(OutputFilter, NothingCompleteIsHeldBack) {
  OutputFilter filter(0);
  EXPECT_EQ(filter.Pass("[1,0]<stdout>:50%\r"), "[1,0]<stdout>:50%\r");
  EXPECT_EQ(filter.Pass("[1,"), "");  // may become a tag
  EXPECT_EQ(filter.Pass("x"), "[1,x");
  EXPECT_EQ(filter.Finish(), "");
}

TEST(OutputFilter, UnfinishedTagIsPrintedAtTheEnd) {
  EXPECT_EQ(Filter(0, {"[1,0]<std"}), "[1,0]<std");
  EXPECT_EQ(Filter(0, {"[1,0]<stdout>:a [1"}), "[1,0]<stdout>:a [1");
  EXPECT_EQ(Filter(0, {"[1,1]<stdout>:a [1"}), "");
}

TEST(OutputFilter, BracketsThatAreNotTagsStay) {
  const std::string text = "[1,0]<stdout>:[] [1] [,] [1,] [1,1] [1,1]<stdin>: [[1,1]<std x\n";
  EXPECT_EQ(Filter(0, {text}), text);
}

}  // namespace
}  // namespace vpod::launch
