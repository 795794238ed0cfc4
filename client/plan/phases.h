// The phases of training on which the IPUs of a replica spend their cycles.
#pragma once

#include <cstdint>
#include <vector>

#include "device/model/cost.h"
#include "device/program/executable.h"

namespace vpod::plan {

// Cycles of one IPU in a run, without waiting.
struct PhaseCycles {
  model::Cycles forward, backward, recomputation, update;
  model::Cycles other;  // that belongs to nothing of the model, as loops
};

// By IPU. Conditions hold, and loops take all their rounds, as in model::TimelineOf.
std::vector<PhaseCycles> PhasesOf(const program::Executable& executable, uint32_t program,
                                  const model::Topology& topology);

}  // namespace vpod::plan
