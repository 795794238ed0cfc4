// The losses that hands_on prints, with the settings that it has without options.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace vpod::examples {
namespace {

std::vector<float> LossesOf(const std::string& options) {
  FILE* pipe = popen(absl::StrCat("client/examples/hands_on/hands_on ", options).c_str(), "r");
  if (pipe == nullptr) return {};
  std::vector<float> losses;
  char line[256];
  while (fgets(line, sizeof(line), pipe) != nullptr) {
    float loss = 0;
    if (sscanf(line, "run %*u: loss %f", &loss) == 1) losses.push_back(loss);
  }
  EXPECT_EQ(pclose(pipe), 0);
  return losses;
}

TEST(HandsOnTest, LossesFall) {
  for (const char* options :
       {"", "--precision 16.16", "--network resnet18 --ipus 2 --accumulation 3", "--network mnist",
        "--network mnist --ipus 4 --accumulation 7"}) {
    const std::vector<float> losses = LossesOf(options);
    ASSERT_EQ(losses.size(), 3u) << options;
    for (size_t run = 1; run < losses.size(); ++run)
      EXPECT_LT(losses[run], losses[run - 1]) << options << " run " << run;
  }
}

// When the next data are put in place is of no effect.
TEST(HandsOnTest, SynchronousRunsGiveTheSameLosses) {
  EXPECT_EQ(LossesOf("--network mnist --synchronous"), LossesOf("--network mnist"));
}

}  // namespace
}  // namespace vpod::examples
