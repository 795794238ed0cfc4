// Advice for programs that do not fit the tiles of an IPU: changes that make the fullest tile need
// less memory, and whether they are enough.
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

// The bytes in use at one time on the fullest tile of an IPU, or on all its tiles, by the kinds
// that advice depends on.
struct MemoryInUse {
  // Adds the bytes of a value by its contents and type.
  void Add(MemoryContents contents, program::v1::DataType type, double bytes);

  double total = 0;  // everything, code included
  // Values in float32 and in float16. The state of the optimiser, accumulators and values of
  // updates count as neither: the optimiser decides their precision.
  double single = 0, half = 0;
  double values = 0;        // everything that grows with the micro-batch, of which:
  double kept = 0;          //   results of the forward pass that wait for their gradients
  double recomputed = 0;    //   results of the forward pass that were computed again
  double stashed = 0;       //   bytes that the stages of a pipeline keep for later micro-batches
  double weights = 0;       // trained variables
  double accumulators = 0;  // sums of gradients
  double state = 0;         // the state of the optimiser
  double temporary = 0;     // received operands and partial results
  // The sizes of all kept and of all recomputed values of the program on this IPU, whenever they
  // are in use.
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
  // Adds an operation. ipus_per_replica must be set before.
  void Add(const OperationFeatures& operation);

  bool trains = false;
  bool is_half = false;  // products take float16
  bool is_pipeline = false;
  bool stores_activations = false;         // in streaming memory
  bool has_smallest_micro_batch = false;   // streams bring one item at a time
  bool recomputes = false;                 // some IPU computes values again
  std::set<uint32_t> recomputes_products;  // the IPUs that compute products again
  uint32_t ipus_per_replica = 1;
  uint32_t replicas = 1;  // the replicas that may share the state of the optimiser out
};
// Finds the features of an executable in one pass over its instructions.
ProgramFeatures FeaturesOf(const program::Executable& executable, const Topology& topology);

// The names of the options of the front that compiled an executable; those of C++ if the executable
// does not say them.
OptionNames OptionNamesOf(const program::Executable& executable);

struct MemorySaving {
  double part;  // of the memory in use, from 0 to 1
  MemoryAdvice advice;
};

// The savings on an IPU that are worth trying, without changes that the program has made already.
std::vector<MemorySaving> MemorySavings(const ProgramFeatures& features, uint32_t ipu,
                                        const MemoryInUse& memory);

// The advice of the savings of several IPUs: the largest saving comes first, and no advice twice.
std::vector<MemoryAdvice> AdviceOf(std::vector<MemorySaving> savings);

// A piece of advice in words: "recomputation (CompileOptions::recomputation: kStandard)". Empty if
// the front has no option for it.
std::string TextOf(MemoryAdvice advice, const OptionNames& names);

// The result of a check of memory: whether a program fits, and if not, why and what to try.
struct MemoryVerdict {
  bool fits = true;
  // "Out of memory: …" names the IPU that is fullest, how many of its tiles need more than they
  // have and by how much, the fullest tiles, and the largest values on the fullest one.
  std::string why;
  std::vector<MemoryAdvice> advice;
};
// Checks the memory of all IPUs of a replica. If `use` is given, the MemoryUse of each IPU is added
// to it, whether or not the program fits.
MemoryVerdict JudgeMemory(const program::Executable& executable, const Topology& topology,
                          std::vector<Bytes>* use = nullptr);

enum class TrialResult {
  kFits,
  kDoesNotFit,
  kRefused,   // the model cannot be changed as advised, so the advice is left out
  kNotTried,  // only the user can change the model as advised
};
// Follows several pieces of advice together and says whether the program fits then.
using Trial = std::function<TrialResult(const std::vector<MemoryAdvice>& advice)>;

// Why a program does not fit and what to try, in the words of a front. Each piece of advice is
// tried alone, and all of it together if none is enough.
std::string OutOfMemoryMessage(const MemoryVerdict& verdict, const OptionNames& names,
                               const Trial& trial);
// The part of such a message that gives advice, without the verdict's reason.
absl::string_view AdviceIn(absl::string_view message, const MemoryVerdict& verdict);
// The message without trials, and the reason why nothing was tried: "compiling it takes too long".
std::string UntriedOutOfMemoryMessage(const MemoryVerdict& verdict, const OptionNames& names,
                                      absl::string_view why_not_tried);

}  // namespace vpod::model
