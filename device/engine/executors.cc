#include "device/engine/executors.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <vector>

#include "device/engine/compute_pool.h"

namespace vpod::engine {
namespace {

// A timer that re-arms itself; the flag outlives the handle, so a late tick finds it and stops.
struct Ticker : std::enable_shared_from_this<Ticker> {
  Ticker(boost::asio::io_context& context, std::chrono::milliseconds period,
         std::function<void()> task)
      : timer(context), period(period), task(std::move(task)) {}

  void Arm() {
    timer.expires_after(period);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->stopped.load()) return;
      self->task();
      self->Arm();
    });
  }

  boost::asio::steady_timer timer;
  const std::chrono::milliseconds period;
  const std::function<void()> task;
  std::atomic<bool> stopped = false;
};

}  // namespace

struct Executors::Impl {
  explicit Impl(int compute_threads) : compute(compute_threads) {}

  using Guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;
  boost::asio::io_context control;
  boost::asio::io_context waiting;
  Guard control_work{control.get_executor()};
  Guard waiting_work{waiting.get_executor()};
  ComputePool compute;
  std::shared_ptr<ComputeQueue> common = compute.QueueOf("");
  std::vector<std::thread> threads;
};

Executors::Executors(int compute_threads) : impl_(std::make_unique<Impl>(compute_threads)) {
  impl_->threads.emplace_back([this] { impl_->control.run(); });
  impl_->threads.emplace_back([this] { impl_->waiting.run(); });
}

Executors::~Executors() { Stop(); }

void Executors::Stop() {
  impl_->control.stop();
  impl_->waiting.stop();
  impl_->compute.Stop();
  for (std::thread& thread : impl_->threads) {
    if (thread.joinable()) thread.join();
  }
}

int Executors::compute_threads() const { return impl_->compute.threads(); }

ComputePool& Executors::compute() { return impl_->compute; }

void Executors::PostCompute(std::function<void()> task) { impl_->common->Post(std::move(task)); }

void Executors::PostControl(std::function<void()> task) {
  boost::asio::post(impl_->control, std::move(task));
}

void Executors::PostWaiting(std::function<void()> task) {
  boost::asio::post(impl_->waiting, std::move(task));
}

std::shared_ptr<void> Executors::Every(std::chrono::milliseconds period,
                                       std::function<void()> task) {
  auto ticker = std::make_shared<Ticker>(impl_->control, period, std::move(task));
  PostControl([ticker] { ticker->Arm(); });
  // The handle only raises a flag: the timer itself belongs to the control thread.
  return std::shared_ptr<void>(ticker.get(), [ticker](void*) { ticker->stopped.store(true); });
}

}  // namespace vpod::engine
