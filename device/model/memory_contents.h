// Tells what the bytes in an IPU's memory are for: the one rule by which advice for programs that
// do not fit and profiles tell what could be made smaller.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/string_view.h"
#include "device/model/liveness.h"
#include "device/program/executable.h"

namespace vpod::model {

// Advice is worth a word from this part of the memory on that it saves: a tenth.
inline constexpr uint64_t kWorthTrying = 10;

enum class MemoryContents {
  kOther,        // variables that are not trained, constants
  kWeight,       // that is trained
  kState,        // of an optimiser
  kAccumulator,  // the sum of a weight's gradients
  kUpdate,       // what else updates make, float32 whatever the precision
  kKept,         // a result of the forward pass that waits for its gradient and can be recomputed
  kRecomputed,   // a result that was computed again and waits for its gradient
  kStash,        // what a stage keeps as bytes for later micro-batches
  kValue,        // another value of a micro-batch
};
// "optimizer state"
absl::string_view Name(MemoryContents contents);
// The contents of that name; kOther if there are none.
MemoryContents MemoryContentsNamed(absl::string_view name);

// Classifies the memory of one IPU. Keeps a reference to the executable.
class MemoryContentsOf {
 public:
  MemoryContentsOf(const program::Executable& executable, uint32_t ipu);

  // The contents of a tensor that is always live.
  MemoryContents Tensor(uint32_t tensor) const;
  // The contents of a value in the steps of a program.
  MemoryContents Value(const LiveValue& value, const std::vector<InstructionPlace>& steps) const;

 private:
  // Optimisers may see a view of a variable: what they share is where it lies.
  uint64_t PlaceOf(uint32_t tensor) const;

  const program::Executable& executable_;
  const uint32_t ipu_;
  const program::v1::Ipu& text_;
  std::set<uint64_t> weights_, states_;  // where they lie in the arena
};

}  // namespace vpod::model
