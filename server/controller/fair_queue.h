// A queue for work that takes long and that anybody can ask for. A few threads do the work. The
// next piece is always one of the party that has had the fewest turns since it began to ask, so
// that only a party that asks a thousand times waits for a thousand pieces.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "device/base/mutex.h"

namespace vpod::controller {

// Thread-safe. What waits holds no thread.
class FairQueue {
 public:
  // At most `most_waiting` pieces of each party wait; and when `most_together` of all parties wait,
  // at most one of each.
  FairQueue(size_t threads, size_t most_waiting, size_t most_together);
  ~FairQueue() { Close(); }
  // Waits for the work that has begun. Work that waits, and work that is added later, gets
  // Unavailable. Call Close from one thread, and not from work.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Gets OK on one of the threads when its turn has come, or Unavailable when the queue ends.
  using Work = std::function<void(const absl::Status& turn)>;
  // TooMany() if too much waits already, Unavailable after Close; `work` is not called then.
  absl::Status Add(const std::string& party, Work work) ABSL_LOCKS_EXCLUDED(mutex_);
  // ResourceExhausted. The message names nobody, so that a refused caller does not learn which
  // names exist.
  static absl::Status TooMany();
  // Pieces of work that have not begun.
  size_t waiting() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Party {
    uint64_t turns = 0;       // the party has had, or missed while it did not ask
    std::list<Work> waiting;  // longest first
  };
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  Work Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_waiting_, most_together_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  // The turns of the party that had the latest one, before it.
  uint64_t latest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Party> parties_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace vpod::controller
