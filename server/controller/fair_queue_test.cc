#include "server/controller/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace vpod::controller {
namespace {

const absl::Status kRefused = absl::ResourceExhaustedError("Too many calls wait; try again.");

// One thread, whose work notes for whom it is and lasts until it is told to end.
class FairQueueTest : public testing::Test {
 protected:
  FairQueueTest() {
    EXPECT_TRUE(Ask("first").ok());
    Began(1);  // from now on everything waits
  }
  ~FairQueueTest() override {
    open_ = true;
    queue_.reset();
  }

  absl::Status Ask(const std::string& party) {
    return queue_->Add(party, [this, party](const absl::Status& turn) {
      {
        base::MutexLock lock(mutex_);
        began_.push_back(turn.ok() ? party : "never");
      }
      if (!turn.ok()) return;
      while (!open_ && ends_ == 0) std::this_thread::yield();
      if (!open_) --ends_;
    });
  }
  void AskTimes(int times, const std::string& party) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(Ask(party), absl::OkStatus()) << party << " " << i;
  }
  // The parties of the pieces of work that have begun; waits until there are `count`.
  std::vector<std::string> Began(size_t count) {
    while (true) {
      base::MutexLock lock(mutex_);
      if (began_.size() >= count) return began_;
    }
  }
  // Ends the work that runs, and returns for whom the next is.
  std::string EndOne() {
    const size_t began = Began(0).size();
    ends_ = 1;
    return Began(began + 1).back();
  }

  std::unique_ptr<FairQueue> queue_ = std::make_unique<FairQueue>(1, 100, 120);
  base::Mutex mutex_;
  std::vector<std::string> began_;
  std::atomic<int> ends_ = 0;
  std::atomic<bool> open_ = false;
};

TEST_F(FairQueueTest, OneWhoAsksOftenIsInNobodysWay) {
  AskTimes(50, "mallory");
  AskTimes(2, "zoe");
  std::vector<std::string> began;
  for (int i = 0; i < 4; ++i) began.push_back(EndOne());
  EXPECT_EQ(std::count(began.begin(), began.end(), "zoe"), 2) << "they take turns";
}

// Otherwise somebody could ask a thousand times in alice's name, and alice would have to wait for
// every party that comes later.
TEST_F(FairQueueTest, OneWhoComesLaterIsNotAheadForLong) {
  AskTimes(30, "alice");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(EndOne(), "alice");
  AskTimes(30, "mallory");
  std::vector<std::string> began;
  for (int i = 0; i < 4; ++i) began.push_back(EndOne());
  EXPECT_EQ(std::count(began.begin(), began.end(), "alice"), 2) << "they take turns";
}

TEST_F(FairQueueTest, SoManyOfEachWait) {
  AskTimes(100, "mallory");
  EXPECT_EQ(Ask("mallory"), kRefused);
  AskTimes(1, "alice");
  EXPECT_EQ(EndOne(), "alice") << "she has had the fewest, and is the first by name";
}

// However many names somebody asks by, each of the others may still wait.
TEST_F(FairQueueTest, SoManyOfAllWaitAndThenOneOfEach) {
  for (int i = 0; i < 20; ++i) AskTimes(6, "mallory" + std::to_string(i));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Ask("mallory" + std::to_string(i)), kRefused) << i;
  EXPECT_EQ(queue_->waiting(), 120u);
  AskTimes(1, "alice");
  EXPECT_EQ(Ask("alice"), kRefused);
  AskTimes(1, "bob");
  EXPECT_EQ(queue_->waiting(), 122u);
  EXPECT_EQ(EndOne(), "alice") << "she has had the fewest, and is the first by name";
  EXPECT_EQ(EndOne(), "bob");
  EXPECT_EQ(Ask("mallory0"), kRefused) << "120 still wait";
  EXPECT_EQ(EndOne(), "mallory0");
  AskTimes(1, "mallory0");
  EXPECT_EQ(queue_->waiting(), 120u);
}

TEST_F(FairQueueTest, WhatNeverBeginsIsToldSo) {
  AskTimes(3, "alice");
  open_ = true;  // what runs ends now, and what waits may begin or not
  queue_->Close();
  EXPECT_EQ(Began(0).size(), 4u);
  EXPECT_EQ(Ask("alice"), absl::UnavailableError("The server ends."));
}

TEST(FairQueueThreadsTest, SeveralRunTogetherAndNoMore) {
  std::atomic<int> running = 0, most = 0, done = 0;
  FairQueue queue(3, 100, 100);
  for (int i = 0; i < 30; ++i) {
    const absl::Status added = queue.Add(std::to_string(i % 4), [&](const absl::Status& turn) {
      ASSERT_TRUE(turn.ok());
      const int now = ++running;
      for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {
      }
      std::this_thread::yield();
      --running;
      ++done;
    });
    ASSERT_TRUE(added.ok()) << added;
  }
  while (done < 30) std::this_thread::yield();
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 1);
}

}  // namespace
}  // namespace vpod::controller
