#include "client/render/progress_bar.h"

#include <gtest/gtest.h>

namespace vpod::render {
namespace {

using std::chrono::seconds;

TEST(ProgressBarTest, HasTheFormOfTheRealOne) {
  EXPECT_EQ(ProgressBar("Graph compilation", 1, seconds(3)),
            "Graph compilation: 100%|██████████| 100/100 [00:03<00:00]");
  EXPECT_EQ(ProgressBar("Graph compilation", 0, seconds(0)),
            "Graph compilation:   0%|          | 0/100 [00:00<?]");
  EXPECT_EQ(ProgressBar("Graph compilation", 0.5, seconds(65)),
            "Graph compilation:  50%|█████     | 50/100 [01:05<01:05]");
  EXPECT_EQ(ProgressBar("x", 0.25, seconds(3723)), "x:  25%|██▌       | 25/100 [1:02:03<3:06:09]");
}

TEST(ProgressBarTest, RoundsDown) {
  EXPECT_EQ(ProgressBar("x", 0.999, seconds(1)).substr(0, 7), "x:  99%");
}

}  // namespace
}  // namespace vpod::render
