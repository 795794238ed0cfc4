// A coroutine that ends with a status. It starts when it is awaited, or with Start; it runs on the
// thread that resumes it and is destroyed with its Task, suspended or ended.
#pragma once

#include <atomic>
#include <coroutine>
#include <exception>
#include <utility>

#include "absl/status/status.h"

namespace vpod::engine {

class [[nodiscard]] Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  struct promise_type {
    // The task's end and its caller's suspension may meet on two threads: the later one goes on.
    enum State { kRunning, kEnded, kAwaited };

    struct End {
      bool await_ready() const noexcept { return false; }
      void await_suspend(Handle handle) const noexcept {
        const std::coroutine_handle<> caller = handle.promise().caller;
        // From here on the task may be destroyed by its caller.
        if (handle.promise().state.exchange(kEnded) == kAwaited) caller.resume();
      }
      void await_resume() const noexcept {}
    };

    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    End final_suspend() const noexcept { return {}; }
    void return_value(absl::Status value) { status = std::move(value); }
    void unhandled_exception() const noexcept { std::terminate(); }  // nothing throws here

    absl::Status status;
    std::coroutine_handle<> caller;
    std::atomic<State> state = kRunning;
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Runs until the first suspension.
  void Start() { handle_.resume(); }

  bool await_ready() const noexcept { return false; }
  // False, which resumes the caller, if the task ends without suspending.
  bool await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().caller = caller;
    handle_.resume();
    return handle_.promise().state.exchange(promise_type::kAwaited) != promise_type::kEnded;
  }
  absl::Status await_resume() { return std::move(handle_.promise().status); }

 private:
  explicit Task(Handle handle) : handle_(handle) {}

  Handle handle_;
};

}  // namespace vpod::engine
