#include "tools/vpod/planned_program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/plan/executable_plan.h"
#include "device/base/file.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/plan_arguments.h"
#include "tools/vpod/plan_executable.h"

namespace vpod::tools {
namespace {

using testing::HasSubstr;

class PlannedProgramTest : public testing::Test {
 protected:
  PlannedProgramTest() {
    std::string path = testing::TempDir() + "/planned.XXXXXX";
    directory_ = mkdtemp(path.data());
    setenv("TMPDIR", directory_.c_str(), /*overwrite=*/1);
  }
  ~PlannedProgramTest() override {
    EXPECT_TRUE(std::filesystem::is_empty(directory_)) << "something was left behind";
  }

  static std::string Refusal(const std::vector<std::string>& command) {
    return std::string(CompileByProgram(command).status().message());
  }

  std::string directory_;
};

TEST_F(PlannedProgramTest, GivesWhatTheFirstSessionWouldLoad) {
  const std::string hands_on = "client/examples/hands_on/hands_on";
  const auto executable = CompileByProgram(
      {hands_on, "--network", "mnist", "--ipus", "4", "--accumulation", "7", "--micro-batch", "2"});
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ((*executable)->ipus_per_replica(), 4u);
  const auto plan = plan::PlanExecutable(**executable, 16, "m2000");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->replicas, 4u);
  ASSERT_EQ(plan->runs.size(), 1u);
  EXPECT_EQ(plan->runs[0].items, 4u * 7 * 2);
}

// It unwinds as after any error, but prints none.
TEST_F(PlannedProgramTest, TheProgramEndsByItself) {
  const std::string status = directory_ + "/status", said = directory_ + "/said";
  const auto executable =
      CompileByProgram({"sh", "-c",
                        absl::StrCat("client/examples/hands_on/hands_on --network mnist 2> ", said,
                                     "; echo $? > ", status)});
  EXPECT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(base::ReadFile(status), "1\n");
  EXPECT_EQ(base::ReadFile(said), "");
  std::filesystem::remove(status);
  std::filesystem::remove(said);
}

TEST_F(PlannedProgramTest, AProgramThatDoesNotEndIsToldTo) {
  const std::string told = directory_ + "/told";
  const auto executable = CompileByProgram(
      {"sh", "-c",
       absl::StrCat("trap 'touch ", told, "; exit' TERM; client/examples/hands_on/hands_on ",
                    "--network mnist; while :; do sleep 0.01; done")});
  EXPECT_TRUE(executable.ok()) << executable.status();
  EXPECT_TRUE(std::filesystem::remove(told));
}

// Compiled for one replica without accumulation, gradients would need no collective.
TEST_F(PlannedProgramTest, GradientsMeetOnSeveralReplicas) {
  const auto executable =
      CompileByProgram({"client/examples/hands_on/hands_on", "--network", "mnist"});
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_TRUE((*executable)->has_collectives(0));
}

// It knows nothing of the POD, and is compiled for the replicas of each one.
TEST_F(PlannedProgramTest, StateIsSharedOutAmongTheReplicasOfThePod) {
  const PlanArguments arguments{.program = {"tests/programs/sharded_program"},
                                .systems = {.pods = {2, 4, 16}},
                                .format = PlanFormat::kJson};
  const auto output = RunPlan(arguments);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_THAT(output->text, AllOf(HasSubstr("\"replicas\": 4"), HasSubstr("\"replicas\": 16")));
  EXPECT_THAT(output->notes,
              testing::ElementsAre("left out: a POD of 2 IPUs has 2 replicas, but 4 share the "
                                   "state of the optimiser"));
  const auto refused = RunPlan({.program = arguments.program, .systems = {.pods = {2}}});
  EXPECT_EQ(refused.status().message(),
            "a POD of 2 IPUs has 2 replicas, but 4 share the state of the optimiser");
}

// It does not wait for a writer.
TEST_F(PlannedProgramTest, APipeIsNotAnExecutable) {
  const std::string pipe = directory_ + "/pipe.vipuexe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadExecutable(pipe).status(), absl::FailedPreconditionError(pipe + " is not a file"));
  std::filesystem::remove(pipe);
}

// A POD is not there, and yet the program attaches to one.
TEST_F(PlannedProgramTest, NeedsNoPod) {
  setenv("IPUOF_CONFIG_DIR", "/nowhere", /*overwrite=*/1);
  const auto executable = CompileByProgram({"client/examples/first_program/first_program"});
  EXPECT_TRUE(executable.ok()) << executable.status();
}

// It is the plan that says so, in the words of the program.
TEST_F(PlannedProgramTest, WhatDoesNotFitIsCompiled) {
  const auto executable =
      CompileByProgram({"client/examples/hands_on/hands_on", "--network", "resnet18",
                        "--image-size", "224", "--micro-batch", "256"});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const absl::Status fits = plan::PlanExecutable(**executable, 16, "m2000")->fits;
  EXPECT_TRUE(absl::IsResourceExhausted(fits));
  EXPECT_THAT(std::string(fits.message()), AllOf(HasSubstr("recomputation (--recompute standard)"),
                                                 testing::Not(HasSubstr("CompileOptions")),
                                                 HasSubstr("None of this was tried")));
}

TEST_F(PlannedProgramTest, AnExplanationTriesTheAdvice) {
  const auto output =
      RunPlan({.program = {"client/examples/hands_on/hands_on", "--network", "resnet18",
                           "--image-size", "224", "--micro-batch", "256"},
               .systems = {.pods = {16}},
               .explain = true});
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_THAT(output->text,
              testing::ContainsRegex("recomputation \\(--recompute standard\\): (fits|not alone)"));
  EXPECT_THAT(output->text, testing::Not(HasSubstr("None of this was tried")));
}

TEST_F(PlannedProgramTest, ProgramsWithoutASessionSaySo) {
  EXPECT_EQ(Refusal({"/nowhere"}), "cannot run '/nowhere': No such file or directory");
  EXPECT_EQ(Refusal({"/"}), "cannot run '/': Permission denied");
  EXPECT_EQ(Refusal({"/nowhere.py"}),
            "cannot run '/nowhere.py': No such file or directory, try -- python3 /nowhere.py");
  EXPECT_EQ(Refusal({"true"}), "program 'true' ended with status 0 before it had a session");
  EXPECT_EQ(Refusal({"sh", "-c", "exit 7"}),
            "program 'sh' ended with status 7 before it had a session");
  EXPECT_EQ(Refusal({"sh", "-c", "kill -SEGV $$"}),
            "program 'sh' was ended by signal 11 (Segmentation fault) before it had a session");
  // Its directory may be gone, full or read-only.
  EXPECT_THAT(Refusal({"sh", "-c",
                       "rmdir $VPOD_PLAN_DIRECTORY; exec "
                       "client/examples/hands_on/hands_on --network mnist"}),
              HasSubstr("ended with status 1 before it had a session"));
  setenv("TMPDIR", "/nowhere", /*overwrite=*/1);
  EXPECT_THAT(Refusal({"true"}), HasSubstr("TMPDIR"));
}

TEST_F(PlannedProgramTest, WhatAProgramLeavesRunningIsEnded) {
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  // Its child, a grandchild, and one that does not listen.
  EXPECT_THAT(
      Refusal({"sh", "-c",
               absl::StrCat("sleep 1000 > ", fifo, " & (sleep 1000 > ", fifo,
                            " & trap '' TERM; sleep 1000 > ", fifo, " &) ; cat < ", fifo, " &")}),
      HasSubstr("before it had a session"));
  // No reader has the pipe open.
  EXPECT_EQ(open(fifo.c_str(), O_WRONLY | O_NONBLOCK), -1);
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  std::filesystem::remove(fifo);
}

TEST_F(PlannedProgramTest, ADaemonThatAProgramStartsGoesOn) {
  const std::string number = directory_ + "/pid";
  Refusal({"sh", "-c",
           absl::StrCat("setsid sh -c 'echo $$ > ", number, "; exec sleep 1000' & while ! [ -s ",
                        number, " ]; do sleep 0.01; done")});
  const pid_t pid = std::stoi("0" + base::ReadFile(number));
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, 0), 0);
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  std::filesystem::remove(number);
}

TEST_F(PlannedProgramTest, DamagedExecutablesSaySo) {
  EXPECT_THAT(Refusal({"sh", "-c", "echo x > $VPOD_PLAN_DIRECTORY/x.vipuexe"}),
              HasSubstr("it is not a compiled executable"));
}

// A process that waits for a program which waits for ever.
class Waiting {
 public:
  explicit Waiting(const std::string& script) {
    pid_ = fork();
    if (pid_ > 0) return;
    CompileByProgram({"sh", "-c", script}).IgnoreError();
    _exit(0);
  }
  // The signal that ended it, when it has got this one.
  int EndWith(int signal) const {
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_;
};

TEST_F(PlannedProgramTest, SignalsArePassedOn) {
  const std::string started = directory_ + "/started", told = directory_ + "/told";
  const auto wait_for = [](const std::string& path) {
    while (!std::filesystem::exists(path)) std::this_thread::yield();
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Waiting waiting(absl::StrCat("trap 'touch ", told, "; exit' INT TERM HUP; touch ",
                                       started, "; while :; do sleep 0.01; done"));
    wait_for(started);
    EXPECT_EQ(waiting.EndWith(signal), signal);
    EXPECT_TRUE(std::filesystem::remove(told));
    std::filesystem::remove(started);
  }
  // Ignored signals, as under nohup, end nothing.
  std::signal(SIGHUP, SIG_IGN);
  {
    const Waiting waiting(absl::StrCat("touch ", started, "; sleep 0.2; touch ", told));
    std::signal(SIGHUP, SIG_DFL);
    wait_for(started);
    EXPECT_EQ(waiting.EndWith(SIGHUP), 0);
    EXPECT_TRUE(std::filesystem::remove(told));
    std::filesystem::remove(started);
  }
  // With a process that is killed, so is its program.
  {
    const Waiting waiting(
        absl::StrCat("echo $$ > ", told, "; mv ", told, " ", started, "; exec sleep 1000"));
    wait_for(started);
    const base::UniqueFd program(
        static_cast<int>(syscall(SYS_pidfd_open, std::stoi(base::ReadFile(started)), 0)));
    EXPECT_EQ(waiting.EndWith(SIGKILL), SIGKILL);
    pollfd ended = {program.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, 60000), 1);
    // It could not remove its directory either.
    for (const auto& left : std::filesystem::directory_iterator(directory_))
      std::filesystem::remove_all(left);
  }
  // One that does not listen is killed.
  const Waiting waiting(absl::StrCat("trap '' INT; touch ", started, "; exec sleep 1000"));
  wait_for(started);
  EXPECT_EQ(waiting.EndWith(SIGINT), SIGINT);
  std::filesystem::remove(started);
}

}  // namespace
}  // namespace vpod::tools
