#include "device/engine/compute_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>

namespace vpod::engine {
namespace {

const auto kNever = [] { return false; };

// Runs `task` on a compute thread and waits for it.
void RunTask(ComputeQueue& queue, const std::function<void()>& task) {
  std::promise<void> done;
  queue.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

TEST(ComputePoolTest, AJobWithManyTasksDoesNotCrowdOutOneWithFew) {
  ComputePool pool(1);
  const auto many = pool.QueueOf("many"), few = pool.QueueOf("few");
  std::string order;
  std::promise<void> posted, done;
  const auto work = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  many->Post([&] { posted.get_future().wait(); });
  for (int i = 0; i < 40; ++i) {
    many->Post([&] {
      work();
      order += 'm';
    });
  }
  for (int i = 0; i < 4; ++i) {
    few->Post([&, i] {
      work();
      order += 'f';
      if (i == 3) done.set_value();
    });
  }
  posted.set_value();
  done.get_future().wait();
  pool.Stop();
  // They alternate, but for what the clock makes of equal tasks.
  EXPECT_LT(order.size(), 20u) << order;
}

TEST(ComputePoolTest, IdleThreadsTakeChunks) {
  ComputePool pool(2);
  const auto queue = pool.QueueOf("job");
  std::set<int> threads;
  base::Mutex mutex;
  // The first chunk waits for the second, which another thread has to take.
  std::promise<void> second;
  std::future<void> came = second.get_future();
  const auto run = [&](size_t chunk, int thread) {
    {
      base::MutexLock lock(mutex);
      threads.insert(thread);
    }
    if (chunk == 0) came.wait();
    if (chunk == 1) second.set_value();
    return absl::OkStatus();
  };
  RunTask(*queue, [&] {
    // Long ones: a thread that sleeps already is woken at once.
    ChunkedWork work(4, run, /*is_long=*/true);
    EXPECT_TRUE(pool.Run(work, *queue, kNever));
    EXPECT_TRUE(work.status().ok());
  });
  EXPECT_EQ(threads, (std::set<int>{0, 1}));
}

TEST(ComputePoolTest, EveryChunkRunsOnceThoughTheWorkPauses) {
  ComputePool pool(3);
  const auto queue = pool.QueueOf("job");
  std::vector<std::atomic<int>> runs(1000);
  const auto run = [&](size_t chunk, int) {
    ++runs[chunk];
    return absl::OkStatus();
  };
  int pauses = 0;
  RunTask(*queue, [&] {
    ChunkedWork work(runs.size(), run);
    int asked = 0;
    while (!pool.Run(work, *queue, [&] { return ++asked % 10 == 0; })) ++pauses;
  });
  EXPECT_GT(pauses, 0);
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST(ComputePoolTest, TheFirstFailedChunkCounts) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    ComputePool pool(3);
    const auto queue = pool.QueueOf("job");
    const auto run = [&](size_t chunk, int) {
      return chunk < 5 ? absl::OkStatus() : absl::InvalidArgumentError(std::to_string(chunk));
    };
    RunTask(*queue, [&] {
      ChunkedWork work(20, run);
      EXPECT_TRUE(pool.Run(work, *queue, kNever));
      EXPECT_EQ(work.status().message(), "5");
    });
  }
}

TEST(ComputePoolTest, DropsTasksThatDidNotRun) {
  auto pool = std::make_unique<ComputePool>(1);
  auto queue = pool->QueueOf("job");
  std::promise<void> started, end;
  std::future<void> ended = end.get_future();
  queue->Post([&] {
    started.set_value();
    ended.wait();
  });
  bool ran = false;
  // A task that holds its own queue must not keep it for ever.
  queue->Post([&ran, queue] { ran = true; });
  started.get_future().wait();
  std::weak_ptr<ComputeQueue> watched = queue;
  queue.reset();
  std::thread stop([&] { pool->Stop(); });
  end.set_value();
  stop.join();
  pool.reset();
  EXPECT_TRUE(ran || watched.expired());
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace vpod::engine
