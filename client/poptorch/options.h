// What the options of a model mean for the compiler.
#pragma once

#include <cstdint>
#include <vector>

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
// The group of a replica, of which there are so many.
uint32_t GroupOf(const ReplicaGroups& groups, uint32_t replicas, uint32_t replica);
// InvalidArgument names a parameter whose groups these replicas do not form, or which forward
// writes.
absl::Status CheckReplicaGroups(const Tape& tape, const ModelOptions& options);

// How a call returns a result of forward, or an anchor.
struct OutputReturn {
  compiler::OutputMode mode = compiler::OutputMode::kAll;
  uint32_t period = 1;  // for kEveryN

  static OutputReturn Of(const ModelOptions& options) {
    return {options.output_mode, options.output_period};
  }
  static OutputReturn Of(const Anchor& anchor) { return {anchor.mode, anchor.period}; }
};
// How many micro-batches of a replica one call returns.
uint32_t ReturnedMicroBatches(const ModelOptions& options, const OutputReturn& output);
// The period with which the device sends the outputs of mode kEveryN, which divides all of theirs.
uint32_t DevicePeriod(const ModelOptions& options);
// Which of the micro-batches that the device sends a call returns, by number.
std::vector<uint32_t> ReturnedPlaces(const ModelOptions& options, const OutputReturn& output);

}  // namespace vpod::poptorch
