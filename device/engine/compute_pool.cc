#include "device/engine/compute_pool.h"

#include <algorithm>
#include <chrono>

namespace vpod::engine {
namespace {

using Clock = std::chrono::steady_clock;

// An idle thread looks for work this long before it sleeps: the next kernel of a program that has
// the machine to itself comes sooner than a sleeper wakes.
constexpr std::chrono::microseconds kSpin{100};
// A sleeper is woken for chunks that take this long, because that costs both threads tens of
// microseconds.
constexpr uint64_t kWorthWakingNs = 200'000;

uint64_t Since(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Asks `condition` again and again, but not for long, until it is true.
template <class Condition>
bool Spin(const Condition& condition) {
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    if (condition()) return true;
    for (int i = 0; i < 8; ++i) Relax();
  } while (Clock::now() < end);
  return false;
}

// The number of the calling compute thread.
thread_local int this_thread = 0;

}  // namespace

void ComputeQueue::Post(std::function<void()> task) { pool_.Post(*this, std::move(task)); }

absl::Status ChunkedWork::status() const {
  base::MutexLock lock(mutex_);
  return status_;
}

void ChunkedWork::TakeAll() {
  if (next_.exchange(chunks_, std::memory_order_relaxed) < chunks_ && offers_ != nullptr)
    offers_->fetch_sub(1, std::memory_order_relaxed);
}

void ChunkedWork::RunNext(int thread) {
  size_t chunk = next_.load(std::memory_order_relaxed);
  do {
    if (chunk >= chunks_) return;
  } while (!next_.compare_exchange_weak(chunk, chunk + 1, std::memory_order_relaxed));
  if (chunk + 1 == chunks_ && offers_ != nullptr) offers_->fetch_sub(1, std::memory_order_relaxed);
  absl::Status status = run_(chunk, thread);
  if (status.ok()) return;
  base::MutexLock lock(mutex_);
  // Chunks before this one were taken before it, so the first failure does not depend on timing.
  TakeAll();
  if (chunk > failed_) return;
  failed_ = chunk;
  status_ = std::move(status);
}

ComputePool::ComputePool(int threads) {
  if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  threads_.resize(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    threads_[static_cast<size_t>(i)] = std::thread([this, i] { RunThread(i); });
  }
}

ComputePool::~ComputePool() {
  Stop();
  // A task may hold what holds its queue. Destroyed tasks may post others, which join their queues.
  for (bool more = true; more;) {
    std::deque<std::function<void()>> dropped;  // destroyed without the lock
    base::MutexLock lock(mutex_);
    more = !ready_.empty();
    if (!more) continue;
    dropped.swap(ready_.front()->tasks_);
    ready_.pop_front();
  }
}

int ComputePool::ThisThread() { return this_thread; }

void ComputePool::Stop() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::shared_ptr<ComputeQueue> ComputePool::QueueOf(const std::string& job) {
  base::MutexLock lock(mutex_);
  std::erase_if(queues_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<ComputeQueue>& known = queues_[job];
  std::shared_ptr<ComputeQueue> queue = known.lock();
  if (queue == nullptr) known = queue = std::make_shared<ComputeQueue>(*this);
  return queue;
}

void ComputePool::Wake() {
  if (sleeping_ > 0) wake_.notify_one();
}

void ComputePool::Post(ComputeQueue& queue, std::function<void()> task) {
  base::MutexLock lock(mutex_);
  if (queue.tasks_.empty()) {
    // What a job did not use while it had nothing to do is not saved up.
    queue.used_ns_ = std::max(queue.used_ns_, least_used_ns_);
    ready_.push_back(queue.shared_from_this());
  }
  queue.tasks_.push_back(std::move(task));
  tasks_.fetch_add(1, std::memory_order_relaxed);
  Wake();
}

std::shared_ptr<ComputeQueue> ComputePool::TakeTask(std::function<void()>& task) {
  if (ready_.empty()) return nullptr;
  const auto it = std::min_element(ready_.begin(), ready_.end(), [](const auto& a, const auto& b) {
    return a->used_ns_ < b->used_ns_;
  });
  std::shared_ptr<ComputeQueue> queue = *it;
  least_used_ns_ = std::max(least_used_ns_, queue->used_ns_);
  task = std::move(queue->tasks_.front());
  queue->tasks_.pop_front();
  // Behind the others that have used as much.
  if (queue->tasks_.empty()) {
    ready_.erase(it);
  } else {
    ready_.splice(ready_.end(), ready_, it);
  }
  tasks_.fetch_sub(1, std::memory_order_relaxed);
  return queue;
}

ChunkedWork* ComputePool::FindOffer() const {
  const auto it = std::find_if(offered_.begin(), offered_.end(),
                               [](const ChunkedWork* work) { return !work->taken(); });
  return it == offered_.end() ? nullptr : *it;
}

bool ComputePool::RunOne(int thread) {
  std::shared_ptr<ComputeQueue> queue;
  std::function<void()> task;
  ChunkedWork* work = nullptr;
  {
    base::MutexLock lock(mutex_);
    if (stopping_) return false;
    queue = TakeTask(task);
    if (queue == nullptr) {
      work = FindOffer();
      if (work == nullptr) return false;
      ++work->helpers_;
    }
  }
  if (work != nullptr) {
    Help(*work, thread);
    return true;
  }
  const Clock::time_point start = Clock::now();
  task();
  task = nullptr;  // what it holds ends before the lock is taken
  base::MutexLock lock(mutex_);
  queue->used_ns_ += Since(start);
  return true;
}

void ComputePool::Help(ChunkedWork& work, int thread) {
  const Clock::time_point start = Clock::now();
  while (!work.taken() && !work.pause_.load(std::memory_order_relaxed) && !TasksWait())
    work.RunNext(thread);
  base::MutexLock lock(mutex_);
  work.queue_->used_ns_ += Since(start);
  // The owner may leave as soon as it sees this.
  if (--work.helpers_ == 0) helped_.notify_all();
}

void ComputePool::Offer(ChunkedWork& work, ComputeQueue& queue) {
  work.pause_.store(false, std::memory_order_relaxed);
  work.queue_ = &queue;
  work.offers_ = &offers_;
  offers_.fetch_add(1, std::memory_order_relaxed);
  base::MutexLock lock(mutex_);
  offered_.push_back(&work);
  if (work.long_chunks_) Wake();
}

void ComputePool::Withdraw(ChunkedWork& work) {
  work.pause_.store(true, std::memory_order_relaxed);
  base::MutexLock lock(mutex_);
  offered_.remove(&work);  // nobody joins from here on
  // For as long as a chunk lasts. Threads that wait here are few, and no task waits for them.
  lock.Wait(helped_, [&] { return work.helpers_ == 0; });
  work.offers_ = nullptr;
  if (!work.taken()) offers_.fetch_sub(1, std::memory_order_relaxed);
}

bool ComputePool::Run(ChunkedWork& work, ComputeQueue& queue, absl::FunctionRef<bool()> pause) {
  const bool offered =
      work.chunks_ - work.next_.load(std::memory_order_relaxed) > 1 && threads_.size() > 1;
  if (offered) Offer(work, queue);
  bool paused = false, woken = !offered || work.long_chunks_;
  const Clock::time_point start = Clock::now();
  while (!work.taken() && !paused) {
    work.RunNext(this_thread);
    if (!woken && Since(start) > kWorthWakingNs) {
      woken = true;
      base::MutexLock lock(mutex_);
      Wake();
    }
    paused = !work.taken() && (stopping_.load(std::memory_order_relaxed) || pause());
  }
  if (offered) Withdraw(work);
  return work.taken();
}

void ComputePool::RunThread(int thread) {
  this_thread = thread;
  const auto something_to_do = [this] {
    return TasksWait() || offers_.load(std::memory_order_relaxed) > 0;
  };
  while (true) {
    if (RunOne(thread)) continue;
    if (Spin([&] { return something_to_do() && RunOne(thread); })) continue;
    base::MutexLock lock(mutex_);
    ++sleeping_;
    lock.Wait(wake_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !ready_.empty() || FindOffer() != nullptr;
    });
    --sleeping_;
    if (stopping_) return;
  }
}

}  // namespace vpod::engine
