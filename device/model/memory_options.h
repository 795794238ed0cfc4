// The changes that make a program need less memory on the tiles of an IPU, and the names that a
// front gives to the options for them.
#pragma once

#include <string>
#include <vector>

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

// How a front spells the options by which its user follows advice. An empty name says that the
// front has no such option: its messages leave the advice out. By default the names are those of
// the C++ interface (client/compiler/compiler.h), whose users change the model, too.
struct OptionNames {
  std::string float16 = "types of inputs and variables";
  std::string micro_batch = "shapes of inputs";
  std::string optimizer = "ProgramSpec::optimizer";
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

// The names of a front that has no option at all, to begin with.
OptionNames NoOptions();

// The names in the order of the fields. Lists are stored: a new field comes at the end.
std::vector<std::string> ListOf(const OptionNames& names);
// The names in such a list. Names that it lacks are those of C++, names beyond the fields are
// ignored.
OptionNames OptionNamesIn(const std::vector<std::string>& list);

}  // namespace vpod::model
