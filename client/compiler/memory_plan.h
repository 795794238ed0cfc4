// The memory pass: places tensors in the arena of an IPU so that those with disjoint lifetimes
// share bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/compiler/lowering.h"

namespace vpod::compiler {

// A block of memory that is in use from step `first` to step `last`, both included.
struct Storage {
  uint64_t bytes = 0;
  int first = 0;
  int last = 0;
  uint64_t offset = 0;  // result
};

// Sets the offsets, multiples of 64 from `base` on; returns the first byte behind all of them.
// Deterministic: large blocks first, each at the lowest place that is free throughout its lifetime.
uint64_t PlaceStorage(std::vector<Storage>& blocks, uint64_t base);

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // of each tensor, in bytes of the arena
  uint64_t end = 0;               // of all temporaries
};

// Places the tensors of one program on an IPU: those that are persistent where `variables` says, by
// name, the others from `base` on by their lifetimes in steps of the program. Tensors
// that Setup uses live to the end; others die after their last use.
MemoryPlan PlanMemory(LoweredIpu& ipu, const std::map<std::string, uint64_t>& variables,
                      uint64_t base);

}  // namespace vpod::compiler
