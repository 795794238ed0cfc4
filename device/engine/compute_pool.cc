#include "device/engine/compute_pool.h"

#include <algorithm>
#include <chrono>

namespace vpod::engine {
namespace {

using Clock = std::chrono::steady_clock;

// An idle thread looks for work this long before it sleeps, and after a while lets others run in
// between: the next kernel of a program that has the machine to itself comes sooner than a sleeper
// wakes.
constexpr std::chrono::microseconds kSpin{1000}, kYieldAfter{50};
// A sleeper is woken when a thread has worked this long without help, because waking costs both
// threads tens of microseconds.
constexpr uint64_t kWorthWakingNs = 200'000;

// A task is left to the thread that ran the last one of its queue for this long.
constexpr std::chrono::microseconds kPatience{50};

uint64_t Nanoseconds(Clock::duration duration) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}
uint64_t Since(Clock::time_point start) { return Nanoseconds(Clock::now() - start); }
// Threads add to it at the same time.
void RaiseTo(std::atomic<uint64_t>& value, uint64_t least) {
  uint64_t now = value.load();
  while (now < least && !value.compare_exchange_weak(now, least)) {
  }
}

int64_t Now() { return Clock::now().time_since_epoch().count(); }

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Asks `condition` again and again, but not for long, until it is true.
template <class Condition>
bool Spin(const Condition& condition) {
  const Clock::time_point start = Clock::now();
  for (Clock::duration spun{}; spun < kSpin; spun = Clock::now() - start) {
    if (condition()) return true;
    if (spun > kYieldAfter) std::this_thread::yield();
    for (int i = 0; i < 8; ++i) Relax();
  }
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
  next_.store(chunks_, std::memory_order_relaxed);
  if (offer_ != nullptr) offer_->work.store(nullptr);
}

void ChunkedWork::RunNext(int thread) {
  size_t chunk = next_.load(std::memory_order_relaxed);
  do {
    if (chunk >= chunks_) return;
  } while (!next_.compare_exchange_weak(chunk, chunk + 1, std::memory_order_relaxed));
  // Nobody needs to look any more. The owner cannot offer other work before this thread has left.
  if (chunk + 1 == chunks_ && offer_ != nullptr) offer_->work.store(nullptr);
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
  offers_ = std::vector<ComputeOffer>(static_cast<size_t>(threads));
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
  if (sleeping_.load() == 0) return;
  base::MutexLock lock(mutex_);
  WakeLocked();
}

void ComputePool::WakeLocked() {
  if (sleeping_.load() > 0) wake_.notify_one();
}

void ComputePool::Post(ComputeQueue& queue, std::function<void()> task) {
  base::MutexLock lock(mutex_);
  if (queue.tasks_.empty()) {
    // Time that a job did not use while it had nothing to do is not saved up.
    RaiseTo(queue.used_ns_, least_used_ns_);
    if (ready_.empty()) Reserve(queue.last_thread_);
    ready_.push_back(queue.shared_from_this());
  }
  queue.tasks_.push_back(std::move(task));
  // A thread that looks for something to do comes sooner than a sleeper.
  if (tasks_.fetch_add(1) + 1 > looking_.load()) WakeLocked();
}

std::shared_ptr<ComputeQueue> ComputePool::TakeTask(std::function<void()>& task) {
  if (ready_.empty()) return nullptr;
  const auto it = std::min_element(ready_.begin(), ready_.end(), [](const auto& a, const auto& b) {
    return a->used_ns_.load() < b->used_ns_.load();
  });
  std::shared_ptr<ComputeQueue> queue = *it;
  least_used_ns_ = std::max(least_used_ns_, queue->used_ns_.load());
  task = std::move(queue->tasks_.front());
  queue->tasks_.pop_front();
  // Behind the others that have used as much.
  if (queue->tasks_.empty()) {
    ready_.erase(it);
  } else {
    ready_.splice(ready_.end(), ready_, it);
  }
  tasks_.fetch_sub(1);
  return queue;
}

void ComputePool::Reserve(int thread) {
  const bool awake = thread >= 0 && !offers_[static_cast<size_t>(thread)].sleeping.load();
  if (awake) reserved_until_.store(Now() + Clock::duration(kPatience).count());
  reserved_for_.store(awake ? thread : -1);
}

bool ComputePool::MayTakeTask(int thread) const {
  const int tasks = tasks_.load(), reserved_for = reserved_for_.load();
  return tasks > 1 || (tasks == 1 && (reserved_for < 0 || reserved_for == thread ||
                                      Now() >= reserved_until_.load()));
}

bool ComputePool::RunOne(int thread) { return RunTask(thread) || HelpSomebody(thread); }

bool ComputePool::RunTask(int thread) {
  if (!MayTakeTask(thread)) return false;
  std::shared_ptr<ComputeQueue> queue;
  std::function<void()> task;
  {
    base::MutexLock lock(mutex_);
    if (stopping_) return false;
    queue = TakeTask(task);
    if (queue == nullptr) return false;
    queue->last_thread_ = thread;
    reserved_for_.store(-1);
    // The thread that posted it may have counted on this one for one more.
    if (TasksWait()) WakeLocked();
  }
  const Clock::time_point start = Clock::now();
  task();
  task = nullptr;  // what it holds ends with it
  queue->used_ns_.fetch_add(Since(start));
  return true;
}

bool ComputePool::HelpSomebody(int thread) {
  for (ComputeOffer& offer : offers_) {
    if (offer.work.load(std::memory_order_relaxed) == nullptr) continue;
    offer.helpers.fetch_add(1);
    ChunkedWork* work = offer.work.load();
    if (work != nullptr) Help(*work, thread);
    if (offer.helpers.fetch_sub(1) == 1) offer.helpers.notify_all();
    if (work != nullptr) return true;
  }
  return false;
}

void ComputePool::Help(ChunkedWork& work, int thread) {
  const Clock::time_point start = Clock::now();
  while (!work.taken() && !work.pause_.load(std::memory_order_relaxed) && !MayTakeTask(thread))
    work.RunNext(thread);
  work.queue_->used_ns_.fetch_add(Since(start));
}

bool ComputePool::SomethingIsOffered() const {
  return std::any_of(offers_.begin(), offers_.end(),
                     [](const auto& offer) { return offer.work.load() != nullptr; });
}

void ComputePool::Offer(ChunkedWork& work, ComputeQueue& queue) {
  ComputeOffer& offer = offers_[static_cast<size_t>(this_thread)];
  work.pause_.store(false, std::memory_order_relaxed);
  work.queue_ = &queue;
  work.offer_ = &offer;
  offer.work.store(&work);
  if (work.is_long_) Wake();
}

void ComputePool::CountAlone(uint64_t ns) {
  ComputeOffer& offer = offers_[static_cast<size_t>(this_thread)];
  if (sleeping_.load() == 0 || offer.helpers.load() > 0) return;
  offer.alone_ns += ns;
  if (offer.alone_ns < kWorthWakingNs) return;
  offer.alone_ns = 0;
  Wake();
}

void ComputePool::Withdraw(ChunkedWork& work) {
  ComputeOffer& offer = offers_[static_cast<size_t>(this_thread)];
  work.pause_.store(true, std::memory_order_relaxed);
  offer.work.store(nullptr);  // nobody joins from here on
  // For as long as a chunk lasts.
  if (!Spin([&] { return offer.helpers.load() == 0; })) {
    for (int helpers = offer.helpers.load(); helpers != 0; helpers = offer.helpers.load())
      offer.helpers.wait(helpers);
  }
  work.offer_ = nullptr;
}

bool ComputePool::Run(ChunkedWork& work, ComputeQueue& queue, absl::FunctionRef<bool()> pause) {
  const bool offered =
      work.chunks_ - work.next_.load(std::memory_order_relaxed) > 1 && threads_.size() > 1;
  if (offered) Offer(work, queue);
  bool paused = false;
  Clock::time_point start = Clock::now();
  while (!work.taken() && !paused) {
    work.RunNext(this_thread);
    paused = !work.taken() && (stopping_.load(std::memory_order_relaxed) || pause());
    if (offered) {
      const Clock::time_point end = Clock::now();
      CountAlone(Nanoseconds(end - start));
      start = end;
    }
  }
  if (offered) Withdraw(work);
  return work.taken();
}

void ComputePool::RunThread(int thread) {
  this_thread = thread;
  while (!stopping_.load()) {
    if (RunOne(thread)) continue;
    looking_.fetch_add(1);
    const bool found = Spin([&] { return MayTakeTask(thread) || SomethingIsOffered(); });
    looking_.fetch_sub(1);
    if (found) continue;
    base::MutexLock lock(mutex_);
    // Before it looks for the last time: who offers something after that sees a sleeper.
    std::atomic<bool>& sleeping = offers_[static_cast<size_t>(thread)].sleeping;
    sleeping.store(true);
    sleeping_.fetch_add(1);
    lock.Wait(wake_, [this] { return stopping_ || TasksWait() || SomethingIsOffered(); });
    sleeping_.fetch_sub(1);
    sleeping.store(false);
  }
}

}  // namespace vpod::engine
