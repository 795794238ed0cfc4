// Parts of an engine, for engine*.cc, interpreter*.cc and lease_group.cc.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "device/base/mutex.h"
#include "device/engine/compute_pool.h"
#include "device/engine/engine.h"
#include "device/engine/kernels/kernel.h"
#include "device/engine/lease_group.h"
#include "device/engine/packing.h"
#include "device/engine/task.h"
#include "device/engine/unit_barrier.h"
#include "device/fabric/collective.h"
#include "device/fabric/job.h"
#include "device/program/ops/collective.h"
#include "device/shm/mapping.h"
#include "device/shm/segment.h"

namespace vpod::engine {

// One (replica, IPU): its memory and its clock.
struct Engine::Unit {
  uint32_t replica = 0;  // local
  uint32_t ipu = 0;
  size_t position = 0;  // among the units of this IPU that are here
  // Runs steps for all of them.
  bool leads() const { return position == 0; }
  // The tensors. Where a job spans processes, those of the other agents of this host map them too.
  shm::Segment arena;
  // Of this process alone: the remote buffers, memory that the chunks of a kernel share, and packed
  // forms. Kernels trust what they have written there.
  shm::Mapping own;
  std::byte* remote = nullptr;
  std::byte* shared = nullptr;
  std::byte* packed = nullptr;  // of the running kernel
  std::byte* kept = nullptr;    // of the kernels that keep theirs
  // Belongs to the unit's coroutine while it runs; the engine's mutex guards it otherwise.
  std::unique_ptr<KeptForms> forms;
  std::byte* At(const program::HostTensor& tensor) const {
    return (tensor.remote ? remote : arena.data()) + tensor.offset;
  }
  // Cycles since the run began, with which all IPUs begin together: the host starts a run when all
  // are ready. Written by the unit's coroutine, and by a rendezvous while the unit is suspended.
  std::atomic<uint64_t> clock = 0;
  // Cycles since load, at the end of the last run.
  std::atomic<uint64_t> counter = 0;
};

// A prepared instruction.
struct Engine::Step {
  const program::v1::Instruction* source = nullptr;
  const program::v1::Origin* origin = nullptr;  // if it is known
  size_t number = 0;                            // of the instruction in its function
  Kernel kernel;                                // without phases for communication and control
  Scope scope = Scope::kUnit;                   // of what it writes
  Scope results = Scope::kUnit;                 // of a collective: who needs them
  bool meets = false;                           // with other units, also in a function it calls
  std::optional<KeptOperand> kept;
  std::vector<uint32_t> written;  // ranges of the packing plan
  model::Cost cost;
};

// One run of a program on all local units.
struct Engine::Run_ : std::enable_shared_from_this<Run_> {
  std::shared_ptr<Engine> engine;
  uint32_t program = 0;
  uint64_t number = 0;           // in the keys of its rendezvous
  bool spans_processes = false;  // some of the units that meet are on other processes
  bool meets_leases = false;     // and some of other leases, here or elsewhere
  std::byte* slot = nullptr;
  Done done;
  std::atomic<size_t> remaining = 0;
  base::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);  // the first error
  std::atomic<bool> failed = false;            // `status` is set: the other units may stop
  std::deque<UnitBarrier> barriers;            // [ipu], of its units here
  std::shared_ptr<LeaseRun> leases;            // with which variables are shared; or null
  // The first cause is that of the run. `by_program`: all who meet in the run are to learn of it.
  void Fail(const absl::Status& cause, bool by_program = true) {
    {
      base::MutexLock lock(mutex);
      status.Update(cause);
    }
    failed.store(true);
    for (UnitBarrier& barrier : barriers) barrier.Open();
    if (leases != nullptr) leases->Stop(by_program ? cause : absl::OkStatus());
  }
  // The units' coroutines. Whatever is to resume one holds the run, which ends with the last
  // of them.
  std::vector<Task> units;
};

// Executes the steps of one unit in one run.
class Engine::Interpreter {
 public:
  Interpreter(Engine& engine, Run_& run, Unit& unit);

  // Fails with the error that ends the run here.
  Task RunFunction(uint32_t function);
  // The units of a run that spans processes meet once more, so that all learn of an error after
  // their last collective.
  Task MeetAtEnd();
  // Whether a step of this unit failed by itself: for its data, or for want of memory.
  bool failed_by_itself() const { return failed_by_itself_; }

 private:
  // Contribution of a unit to a rendezvous.
  struct Participant {
    Interpreter* unit;
    const program::Collective* op;
    bool needs_results;
  };

  // Lets other units and jobs have the thread.
  Task Yield();
  bool SliceIsOver() const { return std::chrono::steady_clock::now() - slice_start_ > kSlice; }
  // Whether the lease was cancelled or another unit has failed the run; and why.
  bool MustStop() const;
  absl::Status WhyStop();
  // Whether the run has failed, but units on other processes wait for this one: it meets them and
  // does nothing else.
  bool OnlyMeets() const {
    return run_.spans_processes && run_.failed.load(std::memory_order_relaxed);
  }
  // The error of a step by itself, with its name and the replica; OK if the unit goes on to meet
  // others.
  absl::Status FailStep(const Step& step, const absl::Status& status);
  // Why the run has failed, for those who meet this unit; OK if it has not.
  absl::Status Failure() const;
  // Takes what the unit learned from others.
  void Met(const absl::StatusOr<fabric::Outcome>& outcome);
  const program::v1::Tensor& TensorAt(uint32_t index) const;
  std::byte* DataAt(uint32_t index) const;
  void Advance(const model::Cost& cost);

  // Steps that run once are between two meetings of the units of this IPU, in the lease or the job:
  // at the first, all have read what these steps change; after the second, all read what they have
  // written. None waits once the run has failed: no unit runs kernels any more.
  Task MeetUnits(Scope scope);
  Task MeetLeases();
  bool Leads(Scope scope) const {
    return scope == Scope::kUnit ||
           (unit_.leads() && (scope == Scope::kLease || run_.leases->IsLedBy(&engine_)));
  }
  // Runs a step that is not once, or by the unit that leads.
  Task RunStep(const Step& step);
  // Accounts for a step that another unit runs.
  void Skip(const Step& step);
  Task Communicate(const Step& step);
  Task Control(const Step& step);
  absl::Status Transfer(uint32_t stream, uint32_t tensor, bool to_device);
  // The units of this IPU in the replica's group meet, those here first, then with those on other
  // processes.
  Task MeetReplicas(program::Collective op, bool needs_results);
  // Runs while all participants are suspended; their memory belongs to the collective until
  // `finish`.
  static void RunCollective(const fabric::RendezvousKey& key,
                            const std::vector<void*>& participants,
                            std::function<void(absl::Status)> finish);
  Task Exchange(uint32_t index);
  // All its IPUs are here and meet; the last one there moves the tensors.
  Task ExchangeHere(uint32_t index);
  // This IPU is one end of a copy; where the other is on another process, it goes there. Without
  // bytes it only brings both clocks together.
  struct Copy {
    uint32_t from, to;
    const program::v1::Tensor* tensor;  // that is here; null: no bytes
  };
  Task CopyBetween(Copy copy);
  Task CopyHere(fabric::RendezvousKey key, Copy copy);

  // A unit hands its thread back after this long, if others wait for it.
  static constexpr std::chrono::milliseconds kSlice{10};

  // Suspends the unit. `start` receives the function that resumes it with a status, to be called
  // once from any thread.
  template <class Start>
  struct Suspension;
  template <class Start>
  Suspension<Start> Suspend(Start start);

  Engine& engine_;
  Run_& run_;
  Unit& unit_;
  std::vector<uint32_t> transfers_;  // made on each stream
  uint64_t collectives_ = 0;         // met so far
  std::vector<uint64_t> copies_;     // made with each other IPU of the replica, by pair
  std::vector<uint64_t> exchanges_;  // made of each
  std::chrono::steady_clock::time_point slice_start_ = std::chrono::steady_clock::now();
  bool failed_by_itself_ = false;
};

template <class Start>
struct Engine::Interpreter::Suspension {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> unit) {
    // Out of the frame, which may be gone before `start` returns.
    Start local = std::move(start);
    local([this, unit, run = interpreter.run_.shared_from_this(),
           queue = interpreter.engine_.queue_](absl::Status result) {
      queue->Post([this, unit, run, result = std::move(result)] {
        status = result;
        unit.resume();
      });
    });
  }
  absl::Status await_resume() { return std::move(status); }

  Interpreter& interpreter;
  Start start;
  absl::Status status = {};
};

template <class Start>
Engine::Interpreter::Suspension<Start> Engine::Interpreter::Suspend(Start start) {
  return {*this, std::move(start)};
}

}  // namespace vpod::engine
