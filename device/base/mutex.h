// Mutex with thread-safety annotations over std::mutex. The distribution's absl::Mutex is not
// instrumented for ThreadSanitizer and yields false races, so shared state of this project is
// guarded by this one.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace vpod::base {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

// Holds a Mutex for a scope. `Wait` gives it up until notified, for the few threads that may block.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.native()) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  template <class Predicate>
  void Wait(std::condition_variable& changed, Predicate predicate) {
    changed.wait(lock_, predicate);
  }
  // Returns the predicate's last value.
  template <class TimePoint, class Predicate>
  bool WaitUntil(std::condition_variable& changed, TimePoint deadline, Predicate predicate) {
    return changed.wait_until(lock_, deadline, predicate);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace vpod::base
