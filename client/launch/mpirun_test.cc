#include "client/launch/mpirun.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "device/base/interruption.h"

namespace vpod::launch {
namespace {

// A shell stands for mpirun.
TEST(RunMpirun, ReturnsTheExitCode) {
  BlockSignals();
  int pid = 0;
  const auto result = RunMpirun({"/bin/sh", {"-c", "exit 3"}}, [&](int p) { pid = p; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->signal, 0);
  EXPECT_GT(pid, 0);
}

TEST(RunMpirun, KilledByASignalIs128AndItsNumber) {
  BlockSignals();
  const auto result = RunMpirun({"/bin/sh", {"-c", "kill -9 $$"}}, [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 137);
}

TEST(RunMpirun, NoticesTheEndUnderAParentThatIgnoresItsChildren) {
  std::signal(SIGCHLD, SIG_IGN);
  BlockSignals();
  const auto result = RunMpirun({"/bin/sh", {"-c", "exit 3"}}, [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 3);
}

TEST(RunMpirun, FiltersOutput) {
  BlockSignals();
  testing::internal::CaptureStdout();
  const auto result = RunMpirun(
      {"/bin/sh", {"-c", "printf '[1,0]<stdout>:shown\\n[1,1]<stdout>:hidden\\n'"}, 0}, [](int) {});
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(out, "[1,0]<stdout>:shown\n");
}

TEST(RunMpirun, HidesVariables) {
  BlockSignals();
  setenv("VPOD_TEST_HIDDEN", "1", 1);
  setenv("VPOD_TEST_SHOWN", "1", 1);
  MpirunCommand command{"/bin/sh",
                        {"-c", "[ -z \"${VPOD_TEST_HIDDEN+x}\" ] && [ \"$VPOD_TEST_SHOWN\" = 1 ]"}};
  command.hidden_variables = {"VPOD_TEST_HIDDEN"};
  const auto result = RunMpirun(command, [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_STREQ(getenv("VPOD_TEST_HIDDEN"), "1");  // for what poprun runs itself
}

TEST(RunMpirun, MakesTheSessionDirectoryAndRemovesIt) {
  BlockSignals();
  const std::string directory = testing::TempDir() + "/session",
                    seen = testing::TempDir() + "/seen";
  const std::string script =
      "touch $OMPI_MCA_orte_tmpdir_base/file && printf $OMPI_MCA_orte_tmpdir_base >" + seen;
  const auto result = RunMpirun({"/bin/sh", {"-c", script}, std::nullopt, directory}, [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  std::string told;
  std::ifstream(seen) >> told;
  EXPECT_EQ(told, directory);
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST(RunMpirun, WhatIsForAKilledPoprunIsNotRunForOneThatLives) {
  BlockSignals();
  const std::string trace = testing::TempDir() + "/trace";
  const auto result =
      RunMpirun({"/bin/sh", {"-c", "exit 3"}, std::nullopt, "", "", {"touch", trace}}, [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(std::filesystem::exists(trace));
}

TEST(RunMpirun, ASessionDirectoryThatCannotBeMadeIsUnavailable) {
  BlockSignals();
  const auto result = RunMpirun({"/bin/true", {}, std::nullopt, "/no/such/session"},
                                [](int) { ADD_FAILURE() << "nothing was started"; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
}

TEST(AwaitSignal, EndsWhenOneCameAndLeavesItPending) {
  BlockSignals();
  AwaitSignal(std::chrono::milliseconds(1));
  EXPECT_EQ(base::PendingEndSignal(), 0);
  kill(getpid(), SIGTERM);
  AwaitSignal(std::chrono::hours(1));
  EXPECT_EQ(base::PendingEndSignal(), SIGTERM);
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGTERM);
  EXPECT_EQ(sigwaitinfo(&taken, nullptr), SIGTERM);
}

TEST(RunMpirun, MissingProgramIsUnavailable) {
  BlockSignals();
  const auto result =
      RunMpirun({"/no/such/mpirun", {}}, [](int) { ADD_FAILURE() << "nothing was started"; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(result.status().message(), "No such file or directory");
}

}  // namespace
}  // namespace vpod::launch
