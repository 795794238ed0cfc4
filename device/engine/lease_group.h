// The leases of a job in this process, and the variables that they share: those that are uniform
// over the replicas of all of them and begin a run with equal contents.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/mutex.h"
#include "device/engine/engine.h"
#include "device/engine/memory_budget.h"
#include "device/engine/sharing.h"
#include "device/engine/unit_barrier.h"
#include "device/shm/segment.h"

namespace vpod::engine {

// A run of several leases, as far as they share variables. Thread-safe.
class LeaseRun {
 public:
  // The units of the leader run the steps that write what is shared. `units` of all leases, by IPU.
  LeaseRun(const Engine* leader, const std::vector<size_t>& units) : leader_(leader) {
    for (size_t each : units) barriers_.emplace_back(each);
  }

  bool IsLedBy(const Engine* engine) const { return leader_ == engine; }
  UnitBarrier& barrier(uint32_t ipu) { return barriers_[ipu]; }

  // Some lease has failed and will not arrive any more. `cause` is an error of the program, which
  // all leases get; without one, the job fails and gives the reason.
  void Stop(const absl::Status& cause) {
    {
      base::MutexLock lock(mutex_);
      failure_.Update(cause);
      stopped_ = true;
    }
    for (UnitBarrier& barrier : barriers_) barrier.Open();
  }
  bool IsStopped(absl::Status* cause) {
    base::MutexLock lock(mutex_);
    *cause = failure_;
    return stopped_;
  }

  // Calls `end` at once, or, if a lease has failed, after the leader's run: until then its units
  // may write what this lease has mapped.
  void End(const Engine* engine, std::function<void()> end) {
    std::vector<std::function<void()>> ends;
    {
      base::MutexLock lock(mutex_);
      if (IsLedBy(engine)) {
        leader_has_ended_ = true;
        ends = std::move(waiting_);
      } else if (stopped_ && !leader_has_ended_) {
        waiting_.push_back(std::move(end));
        return;
      }
    }
    end();
    for (const auto& each : ends) each();
  }

 private:
  const Engine* const leader_;
  std::deque<UnitBarrier> barriers_;  // [ipu]
  base::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool leader_has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Holds the shared copies, which outlive any one lease: the engines of the job own it together.
// Other jobs cannot reach it, and nothing in it can be found by a hash. Thread-safe.
class LeaseGroup {
 public:
  // Decides what these engines share in a run, and maps it. They all take part in the run, and
  // none of their units has begun it. Returns null if they share nothing. ResourceExhausted if
  // there is no memory for copies of variables that have become different, Cancelled if a lease
  // ends; each engine keeps the contents that it has.
  absl::StatusOr<std::shared_ptr<LeaseRun>> Agree(std::vector<Engine*> engines);
  // Gives an engine its own copy of pages that are mapped from here, with their contents.
  // ResourceExhausted: nothing has changed.
  absl::Status Unshare(Engine& engine, uint32_t ipu, const program::ByteSet& pages);
  // The engine is about to be destroyed.
  void Forget(Engine& engine);

 private:
  // The variables, by number in host_tensors(), that all engines offer with equal contents.
  static absl::StatusOr<std::vector<bool>> Candidates(const std::vector<Engine*>& engines);
  // To compare and to copy variables may take seconds.
  static absl::Status CheckCancelled(const std::vector<Engine*>& engines);
  static SharingPlan PlanFor(const std::vector<Engine*>& engines, std::vector<bool> candidates);
  // Forgets what belongs to another executable.
  void UseExecutable(const program::Executable& executable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Maps what the engines share by plan_.
  absl::Status Apply(const std::vector<Engine*>& engines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Join(const std::vector<Engine*>& engines, uint32_t ipu,
                    const program::ByteSet& pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status UnshareLocked(Engine& engine, uint32_t ipu, const program::ByteSet& pages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The part of `pages` that no member other than `except` has mapped.
  program::ByteSet NotHeld(uint32_t ipu, program::ByteSet pages, const Engine* except) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex mutex_;
  std::set<Engine*> members_ ABSL_GUARDED_BY(mutex_);  // that may have pages
  std::string hash_ ABSL_GUARDED_BY(mutex_);           // of the executable, for what follows
  std::vector<shm::Segment> segments_ ABSL_GUARDED_BY(mutex_);  // [ipu]
  Reservation reserved_ ABSL_GUARDED_BY(mutex_);                // of the pages that members have
  std::vector<bool> candidates_ ABSL_GUARDED_BY(mutex_);        // of the plan
  std::shared_ptr<const SharingPlan> plan_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::engine
