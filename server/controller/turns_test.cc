#include "server/controller/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace vpod::controller {
namespace {

// Calls that wait for a turn each, note that they have it, and end it when they are told to.
class TurnsTest : public testing::Test {
 protected:
  ~TurnsTest() override {
    open_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  // Returns once the call has the only turn, or waits for it.
  void Ask(const std::string& who) {
    const size_t before = turns_.waiting();
    threads_.emplace_back([this, who] {
      const auto turn = turns_.Await(who);
      {
        base::MutexLock lock(mutex_);
        began_.push_back(turn.ok() ? who : "refused");
      }
      while (!open_ && ends_ == 0) std::this_thread::yield();
      if (!open_) --ends_;
    });
    while (turns_.waiting() == before && Began(0).empty()) std::this_thread::yield();
    if (threads_.size() > 1)
      while (turns_.waiting() == before) std::this_thread::yield();
  }
  // Who has had a turn, once so many have.
  std::vector<std::string> Began(size_t count) {
    while (true) {
      base::MutexLock lock(mutex_);
      if (began_.size() >= count) return began_;
    }
  }
  // The call that has the turn ends, and the next begins.
  std::vector<std::string> EndOne() {
    const size_t began = Began(0).size();
    ends_ = 1;
    return Began(began + 1);
  }

  Turns turns_{1, 100, 120};
  base::Mutex mutex_;
  std::vector<std::string> began_;
  std::atomic<int> ends_ = 0;
  std::atomic<bool> open_ = false;
  std::vector<std::thread> threads_;
};

TEST_F(TurnsTest, OneWhoAsksOftenIsInNobodysWay) {
  for (int i = 0; i < 50; ++i) Ask("mallory");
  Ask("zoe");
  Ask("zoe");
  std::vector<std::string> began;
  for (int i = 0; i < 4; ++i) began = EndOne();
  EXPECT_EQ(std::count(began.begin(), began.end(), "zoe"), 2) << "they take turns";
}

TEST_F(TurnsTest, SoManyOfEachWait) {
  for (int i = 0; i < 101; ++i) Ask("mallory");  // one has the turn
  EXPECT_EQ(turns_.Await("mallory").status(),
            absl::ResourceExhaustedError("Too many calls wait; try again."));
  Ask("alice");
  const auto began = EndOne();
  EXPECT_EQ(began.back(), "alice") << "she has had the fewest, and is the first by name";
}

// However many names somebody asks by, threads are left for others, each of whom may still wait.
TEST_F(TurnsTest, SoManyOfAllWaitAndThenOneOfEach) {
  for (int i = 0; i < 121; ++i) Ask("mallory" + std::to_string(i % 20));  // one has the turn
  const absl::Status refused = absl::ResourceExhaustedError("Too many calls wait; try again.");
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(turns_.Await("mallory" + std::to_string(i)).status(), refused) << i;
  EXPECT_EQ(turns_.waiting(), 120u);
  Ask("alice");
  EXPECT_EQ(turns_.Await("alice").status(), refused);
  Ask("bob");
  EXPECT_EQ(turns_.waiting(), 122u);
  EXPECT_EQ(EndOne().back(), "alice") << "she has had the fewest, and is the first by name";
  EXPECT_EQ(EndOne().back(), "bob");
  EXPECT_EQ(turns_.Await("mallory0").status(), refused) << "120 still wait";
  EXPECT_EQ(EndOne().back(), "mallory0");
  Ask("mallory0");
  EXPECT_EQ(turns_.waiting(), 120u);
}

TEST(TurnsAtOnceTest, SeveralRunTogetherAndNoMore) {
  Turns turns(3, 100, 100);
  std::atomic<int> running = 0, most = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 30; ++i) {
    threads.emplace_back([&, who = std::to_string(i % 4)] {
      const auto turn = turns.Await(who);
      ASSERT_TRUE(turn.ok());
      const int now = ++running;
      for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {
      }
      std::this_thread::yield();
      --running;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 1);
}

}  // namespace
}  // namespace vpod::controller
