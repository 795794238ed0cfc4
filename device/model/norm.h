// Parts of the plans of norms (spec/planner.md 5).
#pragma once

#include "device/model/op_plans.h"
#include "device/model/reduction.h"

namespace vpod::model {

// Worker cycles for 64 bits of the passes of a norm.
inline constexpr double kMomentCycles = 2;  // sum and sum of squares in one reduction
inline constexpr double kNormCycles = 2 * kBroadcastCycles;  // times the scale, plus the offset
// All passes of a gradient but those of the reductions: the norm, products by the gradient and the
// scale, sums and copies.
inline constexpr double kNormGradientCycles = 16;

// Two sums for each of `outputs`, in one pass over x, which all tiles get back that need them.
void AddSums(TilePlan& plan, const program::TensorType& x, uint64_t outputs, bool inner);

}  // namespace vpod::model
