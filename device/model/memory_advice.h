// Advice for programs that do not fit the tiles of an IPU: what would make the fullest tile need
// less, and whether that is enough.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "device/model/cost.h"
#include "device/model/memory_contents.h"
#include "device/model/memory_options.h"
#include "device/program/executable.h"

namespace vpod::model {

// The memory in use at a time, by what advice depends on: of the fullest tile of an IPU or of all
// its tiles.
struct MemoryInUse {
  // `bytes` of a type for something.
  void Add(MemoryContents contents, program::v1::DataType type, double bytes);

  double total = 0;             // bytes, code included
  double single = 0, half = 0;  // floats, without what has its precision from the optimiser
  double values = 0;            // what grows with the micro-batch, of which:
  double kept = 0;              //   results of the forward pass that wait for their gradients
  double recomputed = 0;        //   those that were computed again
  double stashed = 0;           //   what stages keep as bytes for later micro-batches
  double weights = 0;           // that are trained
  double accumulators = 0;      // the sums of their gradients
  double state = 0;             // of the optimiser
  double temporary = 0;         // received and added up
  // Of all values of the program on this IPU, whenever they are in use.
  double kept_at_some_time = 0, recomputed_at_some_time = 0;
};

// An operation of a program, by the properties that advice depends on.
struct OperationFeatures {
  uint32_t ipu = 0;  // of the replica
  bool trains = false;
  bool is_product = false;     // a product of matrices or a convolution
  bool is_recomputed = false;  // for the gradients
  bool is_stash = false;       // keeps a value for a later micro-batch
  bool stores = false;         // writes to streaming memory
};

// The features of a program that advice depends on.
struct ProgramFeatures {
  // Adds an operation; ipus_per_replica is known before.
  void Add(const OperationFeatures& operation);

  bool trains = false;
  bool is_half = false;  // products take float16
  bool is_pipeline = false;
  bool stores_activations = false;         // in streaming memory
  bool has_smallest_micro_batch = false;   // streams bring one item at a time
  bool recomputes = false;                 // on some IPU
  std::set<uint32_t> recomputes_products;  // IPUs on which products are among it
  uint32_t ipus_per_replica = 1;
  uint32_t replicas = 1;  // that may share the state of the optimiser out among them
};
// One pass over its instructions.
ProgramFeatures FeaturesOf(const program::Executable& executable, const Topology& topology);

// How the front that compiled an executable spells its options; those of C++ if that is unknown.
OptionNames OptionNamesOf(const program::Executable& executable);

struct MemorySaving {
  double part;  // of all that is in use, 0 to 1
  MemoryAdvice advice;
};

// The ways to make an IPU need less that are worth trying, but none that the program takes already.
std::vector<MemorySaving> MemorySavings(const ProgramFeatures& features, uint32_t ipu,
                                        const MemoryInUse& memory);

// The advice of the savings of some IPUs, that which saves most first, and each once.
std::vector<MemoryAdvice> AdviceOf(std::vector<MemorySaving> savings);

// "recomputation (CompileOptions::recomputation: kStandard)"; empty if the front has no option for
// it.
std::string TextOf(MemoryAdvice advice, const OptionNames& names);

// The result of a check of memory: whether a program fits, and if not, why and what to try.
struct MemoryVerdict {
  bool fits = true;
  // "Out of memory: …": which IPU, how many tiles and by how much, the fullest tiles, what is on
  // them.
  std::string why;
  std::vector<MemoryAdvice> advice;
};
// `use`, if there is one, gets the MemoryUse of each IPU of a replica, whether or not they fit.
MemoryVerdict JudgeMemory(const program::Executable& executable, const Topology& topology,
                          std::vector<Bytes>* use = nullptr);

enum class TrialResult {
  kFits,
  kDoesNotFit,
  kRefused,   // the model cannot have it: it is no advice
  kNotTried,  // only the user can change the model so
};
// Follows several pieces of advice at once.
using Trial = std::function<TrialResult(const std::vector<MemoryAdvice>& advice)>;

// Why a program does not fit and what to try, in the words of a front. Each piece of advice is
// tried alone, and all of it together if none is enough.
std::string OutOfMemoryMessage(const MemoryVerdict& verdict, const OptionNames& names,
                               const Trial& trial);
// The advice of such a message: what follows why the program does not fit.
absl::string_view AdviceIn(absl::string_view message, const MemoryVerdict& verdict);
// The message where nothing can be tried, and why: "compiling it takes too long".
std::string UntriedOutOfMemoryMessage(const MemoryVerdict& verdict, const OptionNames& names,
                                      absl::string_view why_not_tried);

}  // namespace vpod::model
