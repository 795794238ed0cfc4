// Reductions: on each tile, and in a tree between tiles (spec/planner.md 3).
#pragma once

#include <cstdint>
#include <vector>

#include "device/model/tile_plan.h"

namespace vpod::model {

// A step of the tree: what each tile receives, and the addition.
struct ReduceStage {
  uint64_t bytes = 0, cycles = 0;
  uint64_t sources = 1;  // tiles from which a tile receives
};

// Each tile has this many partial results, of which `depth` tiles have those of the same outputs.
std::vector<ReduceStage> ReductionOf(uint64_t partials, uint64_t depth, bool half);

std::vector<PlanStep> StepsOf(const std::vector<ReduceStage>& stages, uint32_t tiles);

// A reduction: on each tile, with `cycles_per_vector` worker cycles for 64 bits, and then between
// tiles in float32. Inner: the elements of an output lie beside each other.
struct Reduction {
  uint64_t inputs, outputs;
  bool inner = true;
  double cycles_per_vector = 1;
};
std::vector<PlanStep> ReduceSteps(const Reduction& reduction, program::v1::DataType type);

// Cycles of a vertex that adds `depth` partial results for each output (spec/hardware.md 7.5).
uint64_t AddCycles(uint64_t outputs, uint64_t depth, bool half);

}  // namespace vpod::model
