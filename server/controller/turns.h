// Turns for work that takes long and that anybody can ask for: so many at a time, and among those
// who wait the next is of the one who has had the fewest. So one who asks a thousand times waits
// for that, and nobody else does.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "device/base/mutex.h"

namespace vpod::controller {

// Thread-safe. Outlives the turns that it gives.
class Turns {
 public:
  // Of each, at most `most_waiting` calls wait; and when `most_together` of all wait, at most one.
  Turns(size_t at_once, size_t most_waiting, size_t most_together)
      : at_once_(at_once), most_waiting_(most_waiting), most_together_(most_together) {}

  // Holds a turn until it goes away.
  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(turns) {}
    ~Turn() { turns_.End(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };
  // Waits for a turn. ResourceExhausted, at once, if too many calls wait already.
  absl::StatusOr<std::unique_ptr<Turn>> Await(const std::string& who) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls that wait now.
  size_t waiting() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiting {
    bool begins = false;
  };
  struct Party {
    uint64_t turns = 0;           // that it has had while somebody waited
    std::list<Waiting*> waiting;  // longest first
  };
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets those begin for whom there is room.
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t at_once_, most_waiting_, most_together_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0, waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Party> parties_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::controller
