#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "device/engine/executors_impl.h"

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

// How often kernels are looked at: one that is there twice is long.
constexpr std::chrono::milliseconds kKernelWatch{250};

thread_local ComputeThread* current_thread = nullptr;

// Lets a thread that is in a long kernel yield to the others. It cannot be undone.
void GiveWay(const ComputeThread& thread) {
  constexpr int kLowest = 19;
  if (thread.tid != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(thread.tid.load()), kLowest);
}

}  // namespace

Executors::KernelScope::KernelScope() {
  if (current_thread != nullptr) current_thread->steps.fetch_add(1, std::memory_order_relaxed);
}
Executors::KernelScope::~KernelScope() {
  if (current_thread != nullptr) current_thread->steps.fetch_add(1, std::memory_order_relaxed);
}

void Executors::Impl::AddSpare() {
  ComputeThread& spare = team.emplace_back();
  spare.spare = true;
  try {
    spare.thread = std::thread([this, &spare] {
      current_thread = &spare;
      spare.tid = static_cast<int>(syscall(SYS_gettid));
      while (!spare.leave && !compute.stopped()) compute.run_one_for(kKernelWatch);
      spare.ended = true;
    });
  } catch (const std::system_error&) {
    team.pop_back();  // no more threads to be had: the others wait
  }
}

void Executors::Impl::LookAfterKernels() {
  base::MutexLock lock(mutex);
  if (stopping) return;
  int working = 0;
  for (auto it = team.begin(); it != team.end();) {
    ComputeThread& thread = *it;
    const auto next = std::next(it);
    const uint64_t steps = thread.steps.load(std::memory_order_relaxed);
    const bool stuck = steps % 2 == 1 && steps == thread.seen;
    thread.seen = steps;
    if (thread.ended) {
      thread.thread.join();  // at once: it has nothing left to do
      team.erase(it);
    } else if (stuck && thread.spare && !thread.leave) {
      thread.leave = true;
      GiveWay(thread);
    } else if (!stuck && !thread.leave) {
      ++working;
    }
    it = next;
  }
  for (; working < compute_threads; ++working) AddSpare();
  for (ComputeThread& thread : team) {
    if (working <= compute_threads) break;
    if (!thread.spare || thread.leave) continue;
    thread.leave = true;
    --working;
  }
}

Executors::Executors(int compute_threads) : impl_(std::make_unique<Impl>()) {
  if (compute_threads <= 0) {
    compute_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  impl_->compute_threads = compute_threads;
  {
    base::MutexLock lock(impl_->mutex);
    for (int i = 0; i < compute_threads; ++i) {
      ComputeThread& thread = impl_->team.emplace_back();
      thread.thread = std::thread([this, &thread] {
        current_thread = &thread;
        impl_->compute.run();
      });
    }
  }
  impl_->threads.emplace_back([this] { impl_->control.run(); });
  impl_->threads.emplace_back([this] { impl_->waiting.run(); });
  impl_->watch = Every(kKernelWatch, [impl = impl_.get()] { impl->LookAfterKernels(); });
}

Executors::~Executors() { Stop(); }

void Executors::Stop() {
  impl_->compute.stop();
  impl_->control.stop();
  impl_->waiting.stop();
  std::list<ComputeThread>* team = nullptr;
  {
    base::MutexLock lock(impl_->mutex);
    impl_->stopping = true;  // from now on the team stays as it is
    team = &impl_->team;
  }
  for (ComputeThread& each : *team) {
    if (each.thread.joinable()) each.thread.join();
  }
  for (std::thread& thread : impl_->threads) {
    if (thread.joinable()) thread.join();
  }
}

int Executors::compute_threads() const { return impl_->compute_threads; }

int Executors::threads_now() const {
  base::MutexLock lock(impl_->mutex);
  return static_cast<int>(impl_->team.size());
}

void Executors::PostCompute(std::function<void()> task) {
  boost::asio::post(impl_->compute, std::move(task));
}

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
