// The executors of a process that hosts IPUs (docs/architecture.md, "Run"): compute threads run
// kernels, and nothing that waits; the control thread runs leases and timers; another thread takes
// what waits for other processes. They are kept apart, because a timer on a busy compute pool is
// late by hundreds of milliseconds.
//
// A kernel cannot be interrupted. If one lasts longer than programs are expected to need, another
// compute thread replaces its own until it ends, so that the others always have as many threads as
// there are cores.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace vpod::engine {

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
  // Compute threads there are now, those in long kernels included.
  int threads_now() const;
  // Around a kernel, on a compute thread; elsewhere it does nothing.
  class KernelScope {
   public:
    KernelScope();
    ~KernelScope();
    KernelScope(const KernelScope&) = delete;
    KernelScope& operator=(const KernelScope&) = delete;
  };
  void PostCompute(std::function<void()> task);
  void PostControl(std::function<void()> task);
  // For what may wait some seconds; one task after the other.
  void PostWaiting(std::function<void()> task);
  // Calls `task` on the control thread every `period` until the returned handle is destroyed; the
  // handle's destructor may run on any thread but the control thread's own tasks, and returns at
  // once.
  std::shared_ptr<void> Every(std::chrono::milliseconds period, std::function<void()> task);

  struct Impl;  // Asio stays out of this header; engine.cc uses it
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::engine
