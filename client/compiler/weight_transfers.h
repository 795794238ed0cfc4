// What moving a replica's weights between the host and its IPUs costs: their runs begin and end
// with the weights on the IPUs, and contain neither.
#pragma once

#include "device/model/cost.h"
#include "device/program/executable.h"

namespace vpod::compiler {

struct WeightTransfers {
  model::Cycles from_host, to_host;

  model::Cycles total() const { return from_host + to_host; }
};

// The cycles of writing all parameters and buffers once and of reading them once, one IPU after the
// other. The state of optimisers and what lies in streaming memory stay where they are.
WeightTransfers PriceWeightTransfers(const program::Executable& executable,
                                     const model::Topology& topology);

}  // namespace vpod::compiler
