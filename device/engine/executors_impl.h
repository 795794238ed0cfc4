// Asio's side of Executors; included by the two sources that need it, because Asio is slow to
// compile.
#pragma once

// clang-format off
#include <utility>  // Asio 1.74's coroutine headers need it before them
// clang-format on
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <vector>

#include "device/engine/executors.h"

namespace vpod::engine {

struct Executors::Impl {
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
};

}  // namespace vpod::engine
