#include "tools/vpod/daemons.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace vpod::tools {
namespace {

// A process that prepares its signals and then waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prepare();
      (void)!write(ready[1], "x", 1);
      while (true) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }

 private:
  int pid_ = 0;
};

void Block(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

TEST(IsEndingTest, AProcessThatOnlyBlocksTheSignalIsNot) {
  const Child child([] { Block(SIGTERM); });
  EXPECT_FALSE(IsEnding(child.pid()));
}

TEST(IsEndingTest, AProcessWithASignalThatEndsItIs) {
  const Child child([] {
    Block(SIGTERM);
    kill(getpid(), SIGTERM);
  });
  EXPECT_TRUE(IsEnding(child.pid()));
}

TEST(IsEndingTest, ADaemonThatHasTakenTheSignalIs) {
  const Child child([] { std::signal(SIGTERM, SIG_IGN); });
  EXPECT_TRUE(IsEnding(child.pid()));
}

TEST(IsEndingTest, AnotherPendingSignalDoesNotCount) {
  const Child child([] {
    Block(SIGUSR1);
    kill(getpid(), SIGUSR1);
    std::signal(SIGPIPE, SIG_IGN);
  });
  EXPECT_FALSE(IsEnding(child.pid()));
}

}  // namespace
}  // namespace vpod::tools
