// Advice for programs that do not fit the tiles of an IPU.
#pragma once

#include <string>

#include "device/model/plan_context.h"
#include "device/model/tile_memory.h"

namespace vpod::model {

// "float16, recomputation (option recomputation), more IPUs per replica (option ipus_per_replica)":
// what makes the fullest tile need less, by what is on it when it needs most, that which saves most
// first. Nothing that the program does already. Options are those of the compiler
// (client/compiler/compiler.h), which have the same names in Python.
std::string MemoryAdvice(const program::Executable& executable, uint32_t ipu,
                         const IpuMemory& memory, const PlanContext& context);

}  // namespace vpod::model
