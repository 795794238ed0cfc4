#include "device/base/thread_priority.h"

#include <gtest/gtest.h>

#include <thread>

namespace vpod::base {
namespace {

int NiceOfThisThread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

// Raising it needs a right that a test may lack; lowering it does not.
TEST(ThreadPriorityTest, ConcernsTheCallingThreadOnly) {
  const int before = NiceOfThisThread();
  if (before >= 19) GTEST_SKIP() << "the test itself runs at the lowest priority";
  std::thread([&] {
    EXPECT_TRUE(SetThreadNice(before + 1));
    EXPECT_EQ(NiceOfThisThread(), before + 1);
  }).join();
  EXPECT_EQ(NiceOfThisThread(), before);
}

TEST(ThreadPriorityTest, IsRaisedOrLeft) {
  const int before = NiceOfThisThread();
  if (before <= -20) GTEST_SKIP() << "the test itself runs at the highest priority";
  std::thread([&] {
    const bool raised = SetThreadNice(before - 1);
    EXPECT_EQ(NiceOfThisThread(), raised ? before - 1 : before);
  }).join();
}

}  // namespace
}  // namespace vpod::base
