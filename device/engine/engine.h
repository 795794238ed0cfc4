// An executable loaded on the IPUs of one lease, and its execution. The unit of execution is
// (replica, IPU): a coroutine on the compute executor. Units meet only at collectives and
// exchanges, through the job.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "device/engine/executors.h"
#include "device/engine/memory_budget.h"
#include "device/engine/sharing.h"
#include "device/fabric/job.h"
#include "device/model/cost.h"
#include "device/program/executable.h"
#include "device/program/stream_layout.h"
#include "device/shm/mapping.h"
#include "device/shm/segment.h"

namespace vpod::engine {

class LeaseGroup;

// Everything an engine needs; the pointers outlive it.
struct EngineOptions {
  Executors* executors = nullptr;
  MemoryBudget* budget = nullptr;
  std::shared_ptr<fabric::Job> job;
  uint32_t instance = 0;        // in the job
  uint32_t replica_offset = 0;  // first global replica
  uint32_t local_replicas = 1;
  // The instance's units (local replica × IPUs per replica + IPU) that are here, ascending; empty:
  // all. The others are run by engines of other processes; stream buffers are laid out for all.
  std::vector<uint32_t> units;
  double clock_hz = 1.33e9;
  uint32_t ipus_per_domain = model::Topology().ipus_per_domain;
  // A run fails at the first instruction that gives NaN or infinity, as for other bad data. Takes
  // no virtual time.
  bool check_finite = false;
  // Refuses executables that do not fit the memory of an IPU.
  bool enforce_memory = true;
  // Local replicas have one copy of each variable that is equal on all of them.
  bool sharing = true;
  // The leases with which this one shares such copies, too: the same object for all leases of the
  // job in this process. Null: it shares with no other lease.
  std::shared_ptr<LeaseGroup> group = nullptr;
};

// Result of one run.
struct RunResult {
  base::Cycles cycles;  // on the slowest IPU
};

class ComputeQueue;
class Task;
struct PackingPlan;

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  using Done = std::function<void(absl::StatusOr<RunResult>)>;

  // Checks the modelled memory, reserves and creates the arenas, prepares the kernels.
  // ResourceExhausted: out of IPU memory, or of the host's budget.
  // Cancelled: `cancelled`, if there is one, became true, for which it looks between instructions.
  static absl::StatusOr<std::shared_ptr<Engine>> Create(
      std::shared_ptr<const program::Executable> executable, const EngineOptions& options,
      const std::atomic<bool>* cancelled = nullptr);
  ~Engine();

  const program::Executable& executable() const { return *executable_; }
  const program::StreamLayout& layout() const { return layout_; }

  // Runs a program once on all local replicas; `slot` is the stream buffer of layout().SlotBytes()
  // bytes and stays valid until `done`. One run at a time: another gives FailedPrecondition. `done`
  // is called on the thread that ended the run and must be short.
  //
  // An error of the program itself (a label out of range) fails the run, on all instances that meet
  // in it, with the name and origin of the instruction and the replica; it takes no virtual time,
  // variables are as they were at the failure, and the next run may begin. InvalidArgument or
  // OutOfRange for bad data, ResourceExhausted if the host has no memory for temporary data. If the
  // units that meet are on several processes, they go on to meet until the end of the run, so that
  // none waits, and tell each other of the failure; what they exchange means nothing.
  void Run(uint32_t program, std::byte* slot, Done done);
  // Makes the current and later runs fail with `cause` as soon as the chunks of their kernels end.
  void Cancel(const absl::Status& cause);
  // OK unless it is cancelled.
  absl::Status CancelCause() const;

  // Whether a unit of the instance is here.
  bool Hosts(uint32_t replica, uint32_t ipu) const { return FindUnit(replica, ipu) != nullptr; }
  // The arena of a unit that is here: descriptor and size, for processes that share the reductions.
  // There is nothing but tensors in it.
  absl::StatusOr<std::pair<int, uint64_t>> Arena(uint32_t replica, uint32_t ipu) const;

  // Variables, while no run is active. `offset` and sizes in bytes; OutOfRange when they leave the
  // variable. `replica` is a local one; without it, all that are here are written. A write that
  // makes replicas differ gives each its own copy of the variable, and of those that its updates
  // depend on; ResourceExhausted if the host has no memory for them: then nothing was written.
  absl::Status WriteVariable(const program::HostTensor& variable, std::optional<uint32_t> replica,
                             uint64_t offset, absl::string_view data);
  // At most `bytes`, fewer where the variable ends.
  absl::StatusOr<std::string> ReadVariable(const program::HostTensor& variable, uint32_t replica,
                                           uint64_t offset = 0, uint64_t bytes = UINT64_MAX) const;

  // Host memory that the local replicas save because they share variables.
  uint64_t saved_bytes() const { return saved_bytes_; }
  // Modelled bytes in use on each IPU of a replica.
  const std::vector<base::Bytes>& memory_use() const { return memory_use_; }
  // Cycle counters since load, as they were at the end of the last run, unit by unit.
  std::vector<base::Cycles> Counters() const;
  // Priced shares of a program's time, for sensors: busy (compute) and exchange, of the total, on
  // IPU `ipu`.
  model::Cost ProgramCost(uint32_t program, uint32_t ipu) const { return costs_[program][ipu]; }

 private:
  friend class LeaseGroup;
  struct Unit;
  struct Step;
  struct Run_;
  class Interpreter;
  // The units that execute a step: each, or one for all of its IPU in the lease, or in the job's
  // leases of this process.
  enum class Scope { kUnit, kLease, kJob };

  Engine(std::shared_ptr<const program::Executable> executable, const EngineOptions& options);
  absl::Status Prepare(const std::atomic<bool>* cancelled);
  absl::Status PrepareSteps(const std::atomic<bool>* cancelled);
  void PlanKeptForms();
  // Fuses each normalisation into the convolution before it, as an epilogue.
  void AttachEpilogues();
  absl::Status AddFiniteChecks();
  // Keeps no packed form, because there is no memory for them.
  void KeepNone();
  std::vector<uint32_t> UnitsHere() const;
  void CountUnits();
  // Host memory of a unit: its arena, and what is of this process alone.
  uint64_t ArenaBytes(uint32_t ipu) const;
  uint64_t OwnBytes(uint32_t ipu) const;
  absl::Status CreateUnits();
  void PricePrograms();

  // --- engine_variables.cc ---
  // The replicas of the lease.
  program::ReplicaRange Replicas() const;
  // The variables among `candidates`, by number in host_tensors(), that the units here can share.
  SharingPlan Plan(std::vector<bool> candidates) const;
  // Host memory that the units here save by a plan.
  uint64_t SavedBytes(const SharingPlan& plan) const;
  void PlanFirstSharing();
  absl::Status ShareFirst();
  bool IsShared(const program::HostTensor& variable) const;
  bool IsEqual(const program::HostTensor& variable) const;  // on all units
  // The variable is about to differ.
  absl::Status Split(const program::HostTensor& variable);
  // Before a write to all replicas: what other leases have must not change with it.
  absl::Status UnshareToWrite(const program::HostTensor& variable);
  // Shares variables again that writes of the host have made equal.
  absl::Status ShareAgain();
  // Maps the pages of the units as `plan` says and keeps their contents. ResourceExhausted if there
  // is no memory for a copy of this lease's own; then nothing has changed. Any other error makes
  // the engine useless.
  absl::Status Remap(SharingPlan plan);
  absl::Status MapPages(uint32_t ipu, const program::ByteSet& pages, bool shared);

  // --- engine_leases.cc ---
  // For the group: map pages back to the lease's own copy, with their contents; or to the group's,
  // which holds the same. An error makes the engine useless.
  absl::Status UnsharePages(uint32_t ipu, const program::ByteSet& pages);
  absl::Status SharePages(uint32_t ipu, const program::ByteSet& pages, const shm::Segment& segment);
  absl::Status MapForAll(uint32_t ipu, const shm::Segment& segment, uint64_t begin, uint64_t bytes);
  absl::Status Unshare(uint32_t ipu, const program::ByteSet& pages);
  // Before a run in which no other lease takes part: it must not write what others have.
  absl::Status UnshareBeforeWriting(uint32_t program);
  // Whether replicas of different leases meet in a program.
  bool MeetsOtherLeases(uint32_t program) const;
  // Calls `visit(ipu, step)` for each step that a program may execute.
  template <class Visit>
  void ForEachStep(uint32_t program, const Visit& visit) const;
  bool HoldsTheSame(const Engine& other, const program::HostTensor& variable) const;
  void SetScopes();
  // The run begins once all leases of the job in this process agree on what they share in it.
  void AgreeAndStart(const std::shared_ptr<Run_>& run);
  static void AgreeOnLeases(const std::vector<void*>& participants,
                            const std::function<void(absl::Status)>& finish);

  const Unit* FirstUnit(uint32_t ipu) const;
  const Unit* FindUnit(uint32_t replica, uint32_t ipu) const;
  // The number of a run, equal for all that meet in it; and whether it needs the job's consent.
  uint64_t NumberRun(uint32_t program, bool* needs_job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartUnits(const std::shared_ptr<Run_>& run);
  Task RunUnit(Run_& run, Unit& unit);
  // `by_itself`: the error is the unit's own, not that of a meeting.
  void UnitFailed(Run_& run, const absl::Status& cause, bool by_itself);
  // Whether all units that meet in a run are of this process.
  bool StaysHere(uint64_t run) const;
  void FinishRun(Run_& run);
  void EndRun(Run_& run);

  const std::shared_ptr<const program::Executable> executable_;
  const EngineOptions options_;
  const model::Topology topology_;
  const program::StreamLayout layout_;
  std::vector<base::Bytes> memory_use_;
  const std::shared_ptr<ComputeQueue> queue_;
  Reservation prepared_;                               // of the steps; outlives them
  Reservation reserved_;                               // outlives the units
  std::vector<shm::Segment> common_;                   // [ipu], what its units share
  std::vector<std::unique_ptr<Unit>> units_;           // replica-major
  std::vector<size_t> units_of_ipu_;                   // [ipu]
  std::vector<std::vector<std::vector<Step>>> steps_;  // [ipu][function]
  std::vector<uint64_t> shared_bytes_;                 // [ipu], the most that a kernel shares
  std::vector<uint64_t> packed_bytes_;                 // [ipu], the most that a kernel packs
  std::vector<PackingPlan> packing_;                   // [ipu]
  shm::Mapping scratch_;                               // of all compute threads
  uint64_t scratch_bytes_ = 0;                         // of one
  std::vector<std::vector<uint32_t>> participants_;    // IPUs of each exchange, ascending
  std::vector<std::vector<model::Cost>> costs_;        // [program][ipu]
  // The variables that are shared. They belong to the run while `running_` is set, and before it
  // begins; the mutex guards them otherwise.
  SharingPlan sharing_;
  Reservation split_;             // for what is not shared any more
  bool may_share_again_ = false;  // the host has written something that is not shared
  absl::Status unusable_;         // what the kernel refused, if it did
  std::vector<bool> can_share_;   // what was shared at first
  // The variables shared with other leases, and the pages of them that are mapped here: some of
  // those of `sharing_`. As `sharing_`; during an agreement they belong to the group.
  std::shared_ptr<const SharingPlan> agreed_;
  std::vector<program::ByteSet> joined_;  // [ipu]
  bool offers_changed_ = true;            // since the last agreement
  std::atomic<uint64_t> saved_bytes_ = 0;
  std::atomic<bool> cancelled_ = false;
  // Not `mutex_`, which a write holds while it splits variables: cancelling must not wait.
  mutable base::Mutex cancel_mutex_;
  absl::Status cancel_cause_ ABSL_GUARDED_BY(cancel_mutex_);
  mutable base::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t collective_runs_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t copying_runs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool spans_processes_ = false;          // some replica is here in part only
  std::vector<bool> meets_other_leases_;  // [program]
};

}  // namespace vpod::engine
