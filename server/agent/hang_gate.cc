#include "server/agent/hang_gate.h"

#include <algorithm>
#include <utility>

namespace vpod::agent {

void HangGate::Close(Clock::time_point until) {
  base::MutexLock lock(mutex_);
  if (for_ever_) return;
  until_ = std::max(until_, until);
  closed_.store(true, std::memory_order_release);
}

void HangGate::Tick(Clock::time_point now) {
  if (!closed()) return;
  {
    base::MutexLock lock(mutex_);
    if (now < until_) return;
  }
  Open();
}

void HangGate::OpenForEver() {
  {
    base::MutexLock lock(mutex_);
    for_ever_ = true;
  }
  Open();
}

void HangGate::Open() {
  std::vector<std::function<void()>> waiting;
  {
    base::MutexLock lock(mutex_);
    closed_.store(false, std::memory_order_release);
    waiting.swap(waiting_);
  }
  for (const auto& go : waiting) go();
}

void HangGate::WhenOpen(std::function<void()> go) {
  if (closed()) {
    base::MutexLock lock(mutex_);
    if (closed()) {
      waiting_.push_back(std::move(go));
      return;
    }
  }
  go();
}

}  // namespace vpod::agent
