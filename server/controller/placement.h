// Where a partition goes: best-fit buddy allocation over the IPUs of an allocation (spec/vipu.md
// 6). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::controller {

// The IPUs of an allocation in cluster order; true where free. Position p is IPU 3 - p%4 of machine
// p/4.
struct PlacementRequest {
  std::vector<bool> free;
  uint32_t ipus_per_ild = 64;
  uint32_t size = 1;          // power of two
  int64_t index = -1;         // fixed slot: IPUs index*size …; -1 lets the rule choose
  std::string allocation_id;  // for messages
};

// First position. A size below an ILD lies in one ILD, aligned to its size, in the smallest free
// block that holds it, the lowest of equals; a larger one takes whole ILDs. ResourceExhausted says
// what is free and how it is cut up; InvalidArgument names an index that no partition can have.
absl::StatusOr<uint32_t> Place(const PlacementRequest& request);

}  // namespace vpod::controller
