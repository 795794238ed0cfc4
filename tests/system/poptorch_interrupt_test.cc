// Programs of PopTorch that are interrupted, or killed, in each phase of a model's life.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

constexpr char kPhases[] = "client/python/poptorch/_testing/phases.py";
constexpr char kMark[] = "POPTORCH_TEST_MARK";

bool HasPyTorch() {
  return std::system("/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null") == 0;
}

std::map<std::string, std::string> Environment() {
  const auto modules = std::filesystem::absolute("client/python");
  return {{"PYTHONPATH", modules.string()},
          {"POPTORCH_IPU_MODEL", "0"},
          {"POPTORCH_WAIT_FOR_IPU", "1"},
          {"OMP_WAIT_POLICY", "passive"}};
}

// Whether a process has this mark in its environment, as all have that the marked program started.
bool IsMarked(TestPod& pod, const std::string& mark) {
  return pod.Shell(absl::StrCat("grep -lsz ", kMark, "=", mark, " /proc/[0-9]*/environ")).code == 0;
}

class PopTorchInterruptTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!HasPyTorch())
      GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
    pod_.CreatePartition("p1", 1);
  }

  // The program is in its phase, whose beginning it has announced.
  std::unique_ptr<Command> Reach(const std::string& phase, const std::string& mark) {
    pod_.environment()[kMark] = mark;
    auto program = pod_.Start({"/usr/bin/python3", kPhases, phase});
    pod_.environment().erase(kMark);
    EXPECT_TRUE(program->WaitForOutput("reached")) << program->Err();
    // Somewhere in the phase, not at its first instruction.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return program;
  }

  void ExpectNothingLeft(const std::string& mark, int others) {
    EXPECT_TRUE(Within(kSoon, [&] { return pod_.AttachedIpus() == others; }));
    EXPECT_TRUE(Within(kSoon, [&] { return !IsMarked(pod_, mark); }));
  }

  TestPod pod_{4, {}, Environment()};
};

TEST_P(PopTorchInterruptTest, NothingIsLeft) {
  const std::string phase = GetParam();
  std::unique_ptr<Command> holder;
  if (phase == "wait") holder = Reach("run", "holder");
  const int others = holder != nullptr;
  for (const int signal : {SIGINT, SIGKILL}) {
    SCOPED_TRACE(absl::StrCat("signal ", signal));
    const std::string mark = absl::StrCat("signal", signal);
    const auto program = Reach(phase, mark);
    kill(program->pid(), signal);
    const Outcome outcome = program->Wait(kSoon);
    if (signal == SIGINT) {
      EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
      EXPECT_EQ(outcome.out, "reached\ninterrupted\nrestored\n") << outcome.err;
    } else {
      EXPECT_EQ(outcome.code, 128 + SIGKILL);
    }
    ExpectNothingLeft(mark, others);
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, PopTorchInterruptTest,
                         ::testing::Values("capture", "compile", "load", "run", "data", "wait"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace vpod::testing
