// What the options of a model mean for the compiler.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/poptorch/build.h"
#include "client/poptorch/program.h"

namespace vpod::poptorch {

// The options with which the graph of a model is compiled; they have one program, of the name that
// the options say. InvalidArgument, in PopTorch's words where it has some: a number of IPUs that
// cannot be reserved, or a pipeline with fewer micro-batches than stages.
absl::StatusOr<compiler::CompileOptions> CompileOptionsFor(const TapeProgram& program,
                                                           const BuiltGraph& built);

// Micro-batches of a replica in one call of the model.
uint32_t MicroBatches(const ModelOptions& options);
// The groups of replicas that read the same inputs, and that of a replica.
uint32_t InputGroups(const ModelOptions& options);
uint32_t InputGroupOf(const ModelOptions& options, uint32_t replica);
// How many micro-batches of a replica one call returns of each result.
uint32_t ReturnedMicroBatches(const ModelOptions& options);

}  // namespace vpod::poptorch
