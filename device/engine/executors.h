// The executors of a process that hosts IPUs (docs/architecture.md, "Run"): compute threads run
// kernels, and nothing that waits (compute_pool.h); the control thread runs leases and timers;
// another thread takes what waits for other processes. They are kept apart, because a timer on a
// busy compute pool is late by hundreds of milliseconds.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace vpod::engine {

class ComputePool;

// Thread-safe. Destruction waits for running tasks and drops queued ones.
class Executors {
 public:
  // `compute_threads` 0 means one a core.
  explicit Executors(int compute_threads = 0);
  ~Executors();
  Executors(const Executors&) = delete;
  Executors& operator=(const Executors&) = delete;

  // Ends the threads: returns when what they were doing is done; queued tasks are kept, not run.
  // Idempotent.
  void Stop();

  int compute_threads() const;
  ComputePool& compute();
  // For work of the process that belongs to no job.
  void PostCompute(std::function<void()> task);
  void PostControl(std::function<void()> task);
  // For what may wait some seconds; one task after the other.
  void PostWaiting(std::function<void()> task);
  // Calls `task` on the control thread every `period` until the returned handle is destroyed; the
  // handle's destructor may run on any thread but the control thread's own tasks, and returns at
  // once.
  std::shared_ptr<void> Every(std::chrono::milliseconds period, std::function<void()> task);

 private:
  struct Impl;  // Asio stays out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::engine
