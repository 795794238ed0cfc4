// What can be done about a program that does not fit the tiles of an IPU, and what a front calls
// the options for it.
#pragma once

#include <string>

namespace vpod::model {

enum class MemoryAdvice {
  kFloat16,
  kRecomputation,
  kMoreRecomputation,  // some is done already
  kLessRecomputedAtOnce,
  kOffChipActivations,
  kSmallerMicroBatch,  // of a program that does not train
  kMoreAccumulation,   // of smaller micro-batches, in a program that trains
  kMemoryProportion,   // of products
  kOffChipOptimizerState,
  kTensorShards,
  kSmallerOptimizer,
  kOffChipWeights,
  kOffChipAccumulators,
  kMoreIpus,
  kMoreIpusSharded,  // and no pipeline
};

// The options by which a user follows advice, as the front that is used spells them; empty if it
// has none, so that the model itself is to be changed. By default those of the C++ interface
// (client/compiler/compiler.h).
struct OptionNames {
  std::string float16, micro_batch, optimizer;
  std::string accumulation = "ProgramSpec::accumulation";
  std::string recomputation = "CompileOptions::recomputation: kStandard";
  std::string memory_proportions = "CompileOptions::products.memory_proportions";
  std::string off_chip_activations = "CompileOptions::off_chip_activations";
  std::string off_chip_optimizer_state = "CompileOptions::off_chip_optimizer_state";
  std::string off_chip_weights = "CompileOptions::off_chip_weights";
  std::string off_chip_accumulators = "CompileOptions::off_chip_accumulators";
  std::string tensor_shards = "CompileOptions::tensor_shards";
  std::string ipus_per_replica = "CompileOptions::ipus_per_replica";
  std::string ipus_without_pipeline = "CompileOptions::ipus_per_replica, schedule: kSharded";
};

}  // namespace vpod::model
