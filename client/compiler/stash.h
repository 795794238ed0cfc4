// Keeps values of a pipeline for later positions of the same IPU.
#pragma once

#include <cstdint>
#include <vector>

#include "client/compiler/lowering.h"

namespace vpod::compiler {

// Adds rings for values that a position writes and a later one reads while micro-batches come in
// between, with their counters. `kept`, by storage, are those that do not change from one
// micro-batch to the next, or belong to all. `off_chip`: large rings lie in streaming memory.
void AddStashes(uint32_t ipu, const std::vector<bool>& kept, bool off_chip,
                LoweredProgram& program);

}  // namespace vpod::compiler
