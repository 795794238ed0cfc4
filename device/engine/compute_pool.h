// The compute threads of a process, which run kernels and nothing that waits. Each job has a queue
// of tasks. A free thread takes a task of the job that has had the least time, so that a job with
// many units does not crowd out one with few; a thread without a task helps with the chunks of
// another's kernel. Neither a task nor a chunk is interrupted: tasks last some milliseconds, chunks
// at most what one is allowed to compute (kernels/kernel.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "device/base/mutex.h"

namespace vpod::engine {

class ComputePool;
class ChunkedWork;

// The work whose chunks a compute thread lets others take. A helper is counted before it looks at
// the work, and the owner leaves when none is counted any more: with sequential consistency either
// a helper sees that the work is gone or the owner sees the helper.
struct alignas(64) ComputeOffer {
  std::atomic<ChunkedWork*> work = nullptr;  // with chunks left
  std::atomic<int> helpers = 0;
  // How long the owner has worked alone on what it offers while another thread slept. Only the
  // owner touches it.
  uint64_t alone_ns = 0;
  std::atomic<bool> sleeping = false;  // whether the owner sleeps
};

// The tasks of one job. Thread-safe. The pool outlives it.
class ComputeQueue : public std::enable_shared_from_this<ComputeQueue> {
 public:
  explicit ComputeQueue(ComputePool& pool) : pool_(pool) {}
  void Post(std::function<void()> task);

 private:
  friend class ComputePool;

  ComputePool& pool_;
  std::deque<std::function<void()>> tasks_;  // guarded by the pool's mutex
  int last_thread_ = -1;                     // that ran a task; the same
  std::atomic<uint64_t> used_ns_ = 0;        // of compute threads, in tasks and in chunks
};

// The chunks of one phase of a kernel, which several threads share. Results must not depend on
// which thread takes which.
class ChunkedWork {
 public:
  // `thread` is the number of the thread that runs the chunk, below ComputePool::threads(). Threads
  // that sleep are woken at once if the work is long, otherwise when such work adds up.
  using RunChunk = absl::FunctionRef<absl::Status(size_t chunk, int thread)>;
  ChunkedWork(size_t chunks, RunChunk run, bool is_long = false)
      : chunks_(chunks), run_(run), is_long_(is_long) {}

  // That of the first chunk that failed; OK while none has failed.
  absl::Status status() const;

 private:
  friend class ComputePool;

  bool taken() const { return next_.load(std::memory_order_relaxed) >= chunks_; }
  void RunNext(int thread);
  // Leaves no chunk to be taken.
  void TakeAll();

  const size_t chunks_;
  const RunChunk run_;
  const bool is_long_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> pause_ = false;
  mutable base::Mutex mutex_;
  size_t failed_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // While it is offered to other threads; written by the owner alone, who publishes it with the
  // offer.
  ComputeQueue* queue_ = nullptr;
  ComputeOffer* offer_ = nullptr;
};

// Thread-safe.
class ComputePool {
 public:
  // 0 means one thread a core.
  explicit ComputePool(int threads = 0);
  // Drops tasks that did not run.
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  // Ends the threads: returns when what they were doing is done. Idempotent.
  void Stop();
  // The number of the calling compute thread.
  static int ThisThread();
  int threads() const { return static_cast<int>(threads_.size()); }
  // The queue of a job; the same one as long as somebody holds it.
  std::shared_ptr<ComputeQueue> QueueOf(const std::string& job);

  // On a compute thread, in a task of `queue`: runs chunks here and on idle threads until all are
  // done or one has failed, and returns true. Returns false with chunks left if `pause`, asked
  // between chunks, says so, or if the pool stops; the next call goes on. No chunk runs when it
  // returns.
  bool Run(ChunkedWork& work, ComputeQueue& queue, absl::FunctionRef<bool()> pause);
  // Whether a task waits for a thread.
  bool TasksWait() const { return tasks_.load() > 0; }

 private:
  friend class ComputeQueue;

  void RunThread(int thread);
  // Runs a task or helps, if there is something to do.
  bool RunOne(int thread);
  bool RunTask(int thread);
  bool HelpSomebody(int thread);
  void Help(ChunkedWork& work, int thread);
  bool SomethingIsOffered() const;
  bool MayTakeTask(int thread) const;
  void Offer(ChunkedWork& work, ComputeQueue& queue);
  void Withdraw(ChunkedWork& work);
  // Wakes a thread when such times have added up.
  void CountAlone(uint64_t ns);
  // The queue whose turn it is, and its next task; null if there is none.
  std::shared_ptr<ComputeQueue> TakeTask(std::function<void()>& task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Post(ComputeQueue& queue, std::function<void()> task);
  void Reserve(int thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes a thread, if one sleeps.
  void Wake();
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::condition_variable wake_;        // sleeping threads
  std::atomic<bool> stopping_ = false;  // written under the mutex
  // Threads that sleep, changed under the mutex, and threads that look for something to do.
  std::atomic<int> sleeping_ = 0, looking_ = 0;
  // A task that waits alone is left for this thread, whose caches hold what it works on, until
  // then, if the thread is awake. -1: it is for any thread.
  std::atomic<int> reserved_for_ = -1;
  std::atomic<int64_t> reserved_until_ = 0;
  uint64_t least_used_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // of the queue that ran last
  std::list<std::shared_ptr<ComputeQueue>> ready_ ABSL_GUARDED_BY(mutex_);  // with tasks
  std::map<std::string, std::weak_ptr<ComputeQueue>> queues_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> tasks_ = 0;        // in ready_, read without the mutex
  std::vector<ComputeOffer> offers_;  // of each thread
  std::vector<std::thread> threads_;
};

}  // namespace vpod::engine
