// Lets a process hang on request (fault AGENT_HANG): everything that would answer or speak first
// passes this gate, and waits at it while the gate is closed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <vector>

#include "device/base/mutex.h"

namespace vpod::agent {

// Thread-safe; costs one atomic load while it is open.
class HangGate {
 public:
  using Clock = std::chrono::steady_clock;

  // Closes until `until`, or later if it is closed for longer already.
  void Close(Clock::time_point until);
  // Opens when its time has come; called about four times a second.
  void Tick(Clock::time_point now);
  // Opens now and for ever: the process is about to end.
  void OpenForEver();

  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Calls `go` at once, or on the thread that opens the gate.
  void WhenOpen(std::function<void()> go);

 private:
  void Open();

  std::atomic<bool> closed_ = false;
  base::Mutex mutex_;
  Clock::time_point until_ ABSL_GUARDED_BY(mutex_){};
  bool for_ever_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::agent
