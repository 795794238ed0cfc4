#include "server/rpc/eviction_queue.h"

#include <utility>
#include <vector>

namespace vpod::rpc {

uint64_t EvictionQueue::Add(uint64_t weight, std::function<void()> evict) {
  std::vector<std::function<void()>> evicted;
  uint64_t number;
  {
    base::MutexLock lock(mutex_);
    number = next_++;
    while (taken_ + weight > capacity_ && !entries_.empty()) evicted.push_back(TakeOldest());
    taken_ += weight;
    entries_[number] = {weight, std::move(evict), Clock::now()};
  }
  for (const auto& evict_one : evicted) evict_one();
  return number;
}

void EvictionQueue::Remove(uint64_t number) {
  Entry removed;  // its function is destroyed after the lock is released
  base::MutexLock lock(mutex_);
  const auto it = entries_.find(number);
  if (it == entries_.end()) return;
  taken_ -= it->second.weight;
  std::swap(removed, it->second);
  entries_.erase(it);
}

void EvictionQueue::EvictThoseUntil(Clock::time_point then) {
  std::vector<std::function<void()>> evicted;
  {
    base::MutexLock lock(mutex_);
    while (!entries_.empty() && entries_.begin()->second.added <= then)
      evicted.push_back(TakeOldest());
  }
  for (const auto& evict_one : evicted) evict_one();
}

std::function<void()> EvictionQueue::TakeOldest() {
  const auto oldest = entries_.begin();
  taken_ -= oldest->second.weight;
  std::function<void()> evict = std::move(oldest->second.evict);
  entries_.erase(oldest);
  return evict;
}

}  // namespace vpod::rpc
