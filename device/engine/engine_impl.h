// Parts of an engine, for engine.cc (preparation, runs, variables) and interpreter.cc.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "device/base/mutex.h"
#include "device/engine/engine.h"
#include "device/engine/executors_impl.h"
#include "device/engine/kernels/kernel.h"
#include "device/fabric/job.h"
#include "device/program/ops/collective.h"
#include "device/shm/segment.h"

namespace vpod::engine {

// One (replica, IPU): its memory and its clock.
struct Engine::Unit {
  uint32_t replica = 0;  // local
  uint32_t ipu = 0;
  shm::Segment arena;
  // Written by the unit's coroutine, and by a rendezvous while the unit is suspended in it.
  std::atomic<uint64_t> cycles = 0;
};

// A prepared instruction.
struct Engine::Step {
  const program::v1::Instruction* source = nullptr;
  Kernel kernel;  // empty for communication and control
  model::Cost cost;
};

// One run of a program on all local units.
struct Engine::Run_ {
  uint32_t program = 0;
  uint64_t number = 0;  // among the runs with collectives
  std::byte* slot = nullptr;
  Done done;
  std::vector<uint64_t> start_cycles;
  std::atomic<size_t> remaining = 0;
  base::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

// Executes the steps of one unit in one run.
class Engine::Interpreter {
 public:
  Interpreter(Engine& engine, Run_& run, Unit& unit);

  boost::asio::awaitable<absl::Status> RunFunction(uint32_t function);

 private:
  // Contribution of a unit to a rendezvous.
  struct Participant {
    Interpreter* unit;
    const program::Collective* op;
  };

  boost::asio::io_context& context();
  const program::v1::Tensor& TensorAt(uint32_t index) const;
  std::byte* DataAt(uint32_t index) const;
  void Advance(const model::Cost& cost);

  boost::asio::awaitable<absl::Status> Communicate(const program::v1::Instruction& step);
  boost::asio::awaitable<absl::Status> Control(const program::v1::Instruction& step);
  absl::Status Transfer(uint32_t stream, uint32_t tensor, bool to_device);
  // The units of this IPU in the replica's group meet, those here first, then with those on other
  // processes.
  boost::asio::awaitable<absl::Status> MeetReplicas(program::Collective op);
  // Runs while all participants are suspended; their memory belongs to the collective until
  // `finish`.
  static void RunCollective(const fabric::RendezvousKey& key,
                            const std::vector<void*>& participants,
                            std::function<void(absl::Status)> finish);
  boost::asio::awaitable<absl::Status> Exchange(uint32_t index);
  // All its IPUs are here and meet; the last one there moves the tensors.
  boost::asio::awaitable<absl::Status> ExchangeHere(uint32_t index);
  // This IPU is one end of a copy; where the other is on another process, it goes there. Without
  // bytes it only brings both clocks together.
  struct Copy {
    uint32_t from, to;
    const program::v1::Tensor* tensor;  // that is here; null: no bytes
  };
  boost::asio::awaitable<absl::Status> CopyBetween(Copy copy);
  boost::asio::awaitable<absl::Status> CopyHere(fabric::RendezvousKey key, Copy copy);

  Engine& engine_;
  Run_& run_;
  Unit& unit_;
  std::vector<uint32_t> transfers_;  // made on each stream
  uint64_t collectives_ = 0;         // met so far
  std::vector<uint64_t> copies_;     // made with each other IPU of the replica, by pair
  std::vector<uint64_t> exchanges_;  // made of each
  std::chrono::steady_clock::time_point slice_start_ = std::chrono::steady_clock::now();
};

}  // namespace vpod::engine
