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
    while (taken_ + weight > capacity_ && !entries_.empty()) {
      auto oldest = entries_.begin();
      taken_ -= oldest->second.weight;
      evicted.push_back(std::move(oldest->second.evict));
      entries_.erase(oldest);
    }
    taken_ += weight;
    entries_[number] = {weight, std::move(evict)};
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

}  // namespace vpod::rpc
