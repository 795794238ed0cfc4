// Places tensors in the arena of an IPU so that those with disjoint lifetimes share bytes.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace vpod::compiler
