// Asio's side of Executors; included by the two sources that need it, because Asio is slow to
// compile.
#pragma once

// clang-format off
#include <utility>  // Asio 1.74's coroutine headers need it before them
// clang-format on
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <thread>
#include <vector>

#include "device/base/mutex.h"
#include "device/engine/executors.h"

namespace vpod::engine {

// A compute thread. Threads beyond the number of cores are spares: they end when they are not
// needed, or after a long kernel of their own, which they finish with low priority.
struct ComputeThread {
  bool spare = false;
  std::atomic<uint64_t> steps = 0;  // into kernels and out of them; odd inside
  std::atomic<bool> leave = false;  // a spare is to end
  std::atomic<bool> ended = false;
  std::atomic<int> tid = 0;
  uint64_t seen = 0;  // steps, when it was last looked at
  std::thread thread;
};

struct Executors::Impl {
  // Looks which threads are in a kernel since it last looked, and has as many others as there
  // should be.
  void LookAfterKernels();
  void AddSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  base::Mutex mutex;
  std::list<ComputeThread> team ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  boost::asio::io_context compute;
  boost::asio::io_context control;
  boost::asio::io_context waiting;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> compute_work{
      compute.get_executor()};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> control_work{
      control.get_executor()};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> waiting_work{
      waiting.get_executor()};
  std::vector<std::thread> threads;
  int compute_threads = 1;
  std::shared_ptr<void> watch;  // a timer of `control`, so it is destroyed before that
};

}  // namespace vpod::engine
