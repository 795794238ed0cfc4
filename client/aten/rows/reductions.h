// For the families that reduce dimensions: which of them, and the reduction itself.
#pragma once

#include <cstdint>
#include <vector>

#include "client/aten/call.h"

namespace vpod::aten {

// The dimensions that are reduced, and those of the result.
struct Over {
  std::vector<uint32_t> axes;
  Dims kept;         // dimensions of the result
  double count = 1;  // elements of which one result is made
};

// The chosen dimensions of `self`, all if there are none; they stay as 1 if `keep` says so.
absl::StatusOr<Over> OverAxes(const Call& call, Tensor self, const Dims& chosen, bool keep);

// The dimensions of argument 0 that argument i chooses; argument i + 1 says whether they stay as 1.
inline absl::StatusOr<Over> OverOf(const Call& call, size_t i) {
  return OverAxes(call, call.tensor(0), call.ints(i), call.flag(i + 1));
}

inline Term Reduced(const Call& call, v1::ReduceOperator function, Tensor self, const Over& over) {
  return call.term(call.graph().Reshape(call.graph().Reduce(function, self, over.axes), over.kept));
}

}  // namespace vpod::aten
