// Bounds what waits for clients: calls that have sent nothing yet, answers that nobody reads. If
// the capacity is exceeded, the entries that have waited longest are evicted. Well-behaved clients
// wait for moments only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

#include "device/base/mutex.h"

namespace vpod::rpc {

// Thread-safe.
class EvictionQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EvictionQueue(uint64_t capacity) : capacity_(capacity) {}

  // Adds an entry of `weight`. `evict` ends what waits; it is called at most once, without a lock,
  // possibly during Remove. Returns the entry's number.
  uint64_t Add(uint64_t weight, std::function<void()> evict);
  // Does nothing if the entry is gone already.
  void Remove(uint64_t number);
  // Evicts the entries that were added at `then` or before.
  void EvictThoseUntil(Clock::time_point then);

 private:
  struct Entry {
    uint64_t weight;
    std::function<void()> evict;
    Clock::time_point added;
  };
  // Takes the oldest entry out; returns its function.
  std::function<void()> TakeOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t capacity_;
  base::Mutex mutex_;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // oldest first
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace vpod::rpc
