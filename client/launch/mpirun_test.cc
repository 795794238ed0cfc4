#include "client/launch/mpirun.h"

#include <gtest/gtest.h>

namespace vpod::launch {
namespace {

// A shell stands for mpirun.
TEST(RunMpirun, ReturnsTheExitCode) {
  BlockSignals();
  int pid = 0;
  const auto result = RunMpirun("/bin/sh", {"-c", "exit 3"}, std::nullopt, [&](int p) { pid = p; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->signal, 0);
  EXPECT_GT(pid, 0);
}

TEST(RunMpirun, KilledByASignalIs128AndItsNumber) {
  BlockSignals();
  const auto result = RunMpirun("/bin/sh", {"-c", "kill -9 $$"}, std::nullopt, [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 137);
}

TEST(RunMpirun, FiltersOutput) {
  BlockSignals();
  testing::internal::CaptureStdout();
  const auto result = RunMpirun(
      "/bin/sh", {"-c", "printf '[1,0]<stdout>:shown\\n[1,1]<stdout>:hidden\\n'"}, 0, [](int) {});
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(out, "[1,0]<stdout>:shown\n");
}

TEST(RunMpirun, MissingProgramIsUnavailable) {
  BlockSignals();
  const auto result = RunMpirun("/no/such/mpirun", {}, std::nullopt,
                                [](int) { ADD_FAILURE() << "nothing was started"; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(result.status().message(), "No such file or directory");
}

}  // namespace
}  // namespace vpod::launch
