// Advice for programs that do not fit the tiles of an IPU.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "device/model/plan_context.h"
#include "device/model/tile_memory.h"

namespace vpod::model {

struct MemorySaving {
  double part;         // of what the fullest tile needs, 0 to 1
  std::string advice;  // "weights off the chip (option off_chip_weights)"
};

// The features of a program that advice depends on. One pass over its instructions.
struct ProgramFeatures {
  bool trains = false;
  bool is_half = false;  // products take float16
  bool is_pipeline = false;
  bool stores_activations = false;         // in streaming memory
  bool has_smallest_micro_batch = false;   // streams bring one item at a time
  bool recomputes = false;                 // on some IPU
  std::set<uint32_t> recomputes_products;  // IPUs on which products are among it
};
ProgramFeatures FeaturesOf(const program::Executable& executable);

// The ways to make the fullest tile of an IPU need less, by what is on it when it needs most, but
// none that the program takes already. Options are those of the compiler
// (client/compiler/compiler.h), which have the same names in Python.
std::vector<MemorySaving> MemorySavings(const program::Executable& executable,
                                        const ProgramFeatures& features, uint32_t ipu,
                                        const IpuMemory& memory, const PlanContext& context);

// "float16, more IPUs per replica (option ipus_per_replica)": the savings of all IPUs that are too
// full, that which saves most first, and each once.
std::string MemoryAdvice(std::vector<MemorySaving> savings);

}  // namespace vpod::model
