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

// The tasks of one job. Thread-safe. The pool outlives it.
class ComputeQueue : public std::enable_shared_from_this<ComputeQueue> {
 public:
  explicit ComputeQueue(ComputePool& pool) : pool_(pool) {}
  void Post(std::function<void()> task);

 private:
  friend class ComputePool;

  ComputePool& pool_;
  // Guarded by the pool's mutex.
  std::deque<std::function<void()>> tasks_;
  uint64_t used_ns_ = 0;  // of compute threads, in tasks and in chunks
};

// The chunks of one phase of a kernel, which several threads share. Results must not depend on
// which thread takes which.
class ChunkedWork {
 public:
  // `thread` is the number of the thread that runs the chunk, below ComputePool::threads(). Threads
  // that sleep are woken at once if chunks are long, otherwise when the work turns out to be.
  using RunChunk = absl::FunctionRef<absl::Status(size_t chunk, int thread)>;
  ChunkedWork(size_t chunks, RunChunk run, bool long_chunks = false)
      : chunks_(chunks), run_(run), long_chunks_(long_chunks) {}

  // Of the failed chunks, the first one's; OK while none has failed.
  absl::Status status() const;

 private:
  friend class ComputePool;

  bool taken() const { return next_.load(std::memory_order_relaxed) >= chunks_; }
  void RunNext(int thread);
  // Leaves no chunk to be taken.
  void TakeAll();

  const size_t chunks_;
  const RunChunk run_;
  const bool long_chunks_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> pause_ = false;
  mutable base::Mutex mutex_;
  size_t failed_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Guarded by the pool's mutex.
  int helpers_ = 0;
  ComputeQueue* queue_ = nullptr;
  // While it is offered to other threads: how many works with chunks left are.
  std::atomic<int>* offers_ = nullptr;
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
  bool TasksWait() const { return tasks_.load(std::memory_order_relaxed) > 0; }

 private:
  friend class ComputeQueue;

  void RunThread(int thread);
  // Runs a task or helps, if there is something to do.
  bool RunOne(int thread);
  // Chunked work that is not all taken; null if there is none.
  ChunkedWork* FindOffer() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Offer(ChunkedWork& work, ComputeQueue& queue);
  void Withdraw(ChunkedWork& work);
  void Help(ChunkedWork& work, int thread);
  // The queue whose turn it is, and its next task; null if there is none.
  std::shared_ptr<ComputeQueue> TakeTask(std::function<void()>& task)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Post(ComputeQueue& queue, std::function<void()> task);
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::condition_variable wake_;        // sleeping threads
  std::condition_variable helped_;      // owners of chunked work whose helpers have left
  std::atomic<bool> stopping_ = false;  // written under the mutex
  int sleeping_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t least_used_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // of the queue that ran last
  std::list<std::shared_ptr<ComputeQueue>> ready_ ABSL_GUARDED_BY(mutex_);  // with tasks
  std::list<ChunkedWork*> offered_ ABSL_GUARDED_BY(mutex_);                 // helpers welcome
  std::map<std::string, std::weak_ptr<ComputeQueue>> queues_ ABSL_GUARDED_BY(mutex_);
  // Copies that are read without the mutex, by threads that look for something to do.
  std::atomic<uint64_t> tasks_ = 0;
  std::atomic<int> offers_ = 0;  // with chunks left
  std::vector<std::thread> threads_;
};

}  // namespace vpod::engine
