// A collective as one process sees it, and its computation where all the memory is at hand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/fabric/pieces.h"

namespace vpod::fabric {

struct Collective {
  Kind kind = Kind::kAllReduce;
  Operator op = Operator::kSum;    // of reductions
  double scale = 1;                // multiplies their results
  size_t root = 0;                 // of a broadcast, its position in the group
  std::vector<uint32_t> replicas;  // members of the group in this process, ascending
  std::vector<std::byte*> arenas;  // their memory
  // Which of them need the results; empty: all do. Only if all members are in this process.
  std::vector<bool> needs_results;
  std::vector<CollectiveTensor> tensors;
  uint64_t clock = 0;                // of the slowest replica here
  std::string what;                  // must be the same everywhere: "all-reduce 0 of program 0 …"
  absl::Status failure;              // the reason, if the run has failed on a replica here
  std::shared_ptr<void> keep_alive;  // the memory and what owns it
};

// All units that meet get the same outcome.
struct Outcome {
  uint64_t clock = 0;    // of the slowest unit
  absl::Status failure;  // the reason, if the run has failed on one of them: the data mean nothing
};

// Called once. An error if not all will come.
using Completed = std::function<void(absl::StatusOr<Outcome>)>;

// Runs a task on a compute thread.
using Compute = std::function<void(std::function<void()>)>;

// Elements of a piece where memory is shared: few enough to keep the caches warm. They do not
// change the bits.
inline constexpr size_t kSharedPiece = 1 << 16;

// Computes a piece; `arenas` is the memory of all members, by position in the group.
void RunPiece(const Collective& collective, const Piece& piece,
              const std::vector<std::byte*>& arenas);

// A collective whose members are all of this process.
void RunHere(Collective collective, const Compute& compute, Completed done);

}  // namespace vpod::fabric
