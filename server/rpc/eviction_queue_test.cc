#include "server/rpc/eviction_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace vpod::rpc {
namespace {

TEST(EvictionQueueTest, TheOldestMakeRoom) {
  std::string out;
  EvictionQueue queue(3);
  const auto add = [&](char name, uint64_t weight = 1) {
    return queue.Add(weight, [&out, name] { out += name; });
  };
  add('a');
  const uint64_t b = add('b');
  add('c');
  EXPECT_EQ(out, "");
  add('d');
  EXPECT_EQ(out, "a");
  queue.Remove(b);
  queue.Remove(b);
  add('e');
  EXPECT_EQ(out, "a");
  add('f', 2);
  EXPECT_EQ(out, "acd");
  add('g', 10);  // larger than the capacity, so it is alone
  EXPECT_EQ(out, "acdef");
  add('h');
  EXPECT_EQ(out, "acdefg");
}

TEST(EvictionQueueTest, ThoseThatWaitForTooLongAreEvicted) {
  using Clock = EvictionQueue::Clock;
  std::string out;
  EvictionQueue queue(10);
  const Clock::time_point begin = Clock::now();
  for (const char name : {'a', 'b', 'c'}) queue.Add(1, [&out, name] { out += name; });
  queue.EvictThoseUntil(begin - std::chrono::nanoseconds(1));
  EXPECT_EQ(out, "");
  const Clock::time_point then = Clock::now();
  while (Clock::now() == then) {
  }
  queue.Add(8, [&out] { out += 'd'; });
  EXPECT_EQ(out, "a");
  queue.EvictThoseUntil(then);
  EXPECT_EQ(out, "abc");
  queue.Add(2, [&out] { out += 'e'; });  // there is room
  EXPECT_EQ(out, "abc");
}

TEST(EvictionQueueTest, EvictRunsWithoutTheLock) {
  EvictionQueue queue(1);
  bool done = false;
  queue.Add(1, [&] {
    queue.Remove(queue.Add(1, [] {}));
    done = true;
  });
  queue.Add(1, [] {});
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace vpod::rpc
