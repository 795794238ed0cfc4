// Where the units of one IPU that are in this process wait for each other during a run.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "device/base/mutex.h"

namespace vpod::engine {

// Thread-safe. Calls `resume` functions without a lock held.
class UnitBarrier {
 public:
  explicit UnitBarrier(size_t units) : units_(units) {}

  // `resume` is called when all units have arrived, which begins the next round; at once if the
  // barrier is open.
  void Arrive(std::function<void()> resume) {
    Resumes resumes;
    {
      base::MutexLock lock(mutex_);
      waiting_.push_back(std::move(resume));
      if (open_ || waiting_.size() == units_) resumes.swap(waiting_);
    }
    for (const auto& each : resumes) each();
  }

  // Nobody waits, now and later.
  void Open() {
    Resumes resumes;
    {
      base::MutexLock lock(mutex_);
      open_ = true;
      resumes.swap(waiting_);
    }
    for (const auto& each : resumes) each();
  }

 private:
  using Resumes = std::vector<std::function<void()>>;

  const size_t units_;
  base::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  Resumes waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::engine
