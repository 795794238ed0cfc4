#include "client/compiler/memory_trials.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/make_executable.h"
#include "client/compiler/planned_program.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"

namespace vpod::compiler {
namespace {

using model::MemoryAdvice;
using model::TrialResult;

// A program with more instructions takes several seconds to compile, which all trials together
// multiply.
constexpr int64_t kMostInstructions = 20000;

int64_t InstructionsOf(const program::Executable& executable) {
  int64_t instructions = 0;
  for (const program::v1::Ipu& ipu : executable.proto().ipus()) {
    for (const program::v1::Function& function : ipu.functions())
      instructions += function.instructions_size();
  }
  return instructions;
}

// The optimiser without any state.
void DropOptimizerState(CompileOptions& options) {
  for (ProgramSpec& spec : options.programs) {
    if (spec.optimizer) spec.optimizer = SgdOptions{};
    for (ParameterGroup& group : spec.groups) group.optimizer = SgdOptions{};
  }
}

// The share of a tile's memory that products may take, by IPU.
std::vector<float> MemoryProportions(const CompileOptions& options) {
  std::vector<std::optional<float>> asked_for = options.products.memory_proportions;
  asked_for.resize(options.ipus_per_replica);
  std::vector<float> proportions;
  for (const auto& proportion : asked_for)
    proportions.push_back(
        proportion.value_or(static_cast<float>(arch::kAvailableMemoryProportion)));
  return proportions;
}

void HalveMemoryProportions(CompileOptions& options) {
  std::vector<float> proportions = MemoryProportions(options);
  for (float& proportion : proportions) proportion /= 2;
  options.products.memory_proportions.assign(proportions.begin(), proportions.end());
}

// "0.6", or "[0.6, 0.5]" if those of the IPUs differ.
std::string MemoryProportionsText(const CompileOptions& options) {
  const std::vector<float> proportions = MemoryProportions(options);
  const bool differ = std::adjacent_find(proportions.begin(), proportions.end(),
                                         std::not_equal_to<>()) != proportions.end();
  return differ ? absl::StrCat("[", absl::StrJoin(proportions, ", "), "]")
                : absl::StrCat(proportions[0]);
}

// The front's names of options, with the value that a trial gives where the name has none.
model::OptionNames NamesWithValues(const CompileOptions& options) {
  model::OptionNames names = options.front.names;
  if (names.memory_proportions.empty()) return names;
  CompileOptions halved;
  halved.ipus_per_replica = options.ipus_per_replica;
  halved.products = options.products;
  HalveMemoryProportions(halved);
  absl::StrAppend(&names.memory_proportions, " ", MemoryProportionsText(halved), ", now ",
                  MemoryProportionsText(options));
  return names;
}

// False: no option makes this change.
bool Follow(MemoryAdvice advice, CompileOptions& options) {
  switch (advice) {
    case MemoryAdvice::kRecomputation:
    case MemoryAdvice::kMoreRecomputation:
    case MemoryAdvice::kLessRecomputedAtOnce:
      options.recomputation = Recomputation::kStandard;
      return true;
    case MemoryAdvice::kOffChipActivations:
      return options.off_chip_activations = true;
    case MemoryAdvice::kOffChipOptimizerState:
      return options.off_chip_optimizer_state = true;
    case MemoryAdvice::kOffChipWeights:
      return options.off_chip_weights = true;
    case MemoryAdvice::kOffChipAccumulators:
      return options.off_chip_accumulators = true;
    case MemoryAdvice::kTensorShards:
      options.tensor_shards = ReplicasOfInstance(options);
      return true;
    case MemoryAdvice::kSmallerOptimizer:
      DropOptimizerState(options);
      return true;
    case MemoryAdvice::kMemoryProportion:
      HalveMemoryProportions(options);
      return true;
    case MemoryAdvice::kFloat16:
    case MemoryAdvice::kSmallerMicroBatch:
    case MemoryAdvice::kMoreAccumulation:
    case MemoryAdvice::kMoreIpus:
    case MemoryAdvice::kMoreIpusSharded:
      return false;
  }
  return false;
}

TrialResult CompileAgain(const graph::Graph& graph, CompileOptions options,
                         const BeforeStep& before) {
  options.dump_passes.clear();
  const auto executable = MakeExecutable(graph, options, before);
  if (!executable.ok()) return TrialResult::kRefused;
  return model::JudgeMemory(**executable, TopologyOf(options)).fits ? TrialResult::kFits
                                                                    : TrialResult::kDoesNotFit;
}

TrialResult Try(const graph::Graph& graph, CompileOptions options,
                const std::vector<MemoryAdvice>& all, const BeforeStep& before) {
  std::vector<MemoryAdvice> of_model;
  CompileOptions ignored;
  for (MemoryAdvice advice : all) {
    if (!Follow(advice, ignored)) of_model.push_back(advice);
  }
  std::optional<Model> changed;
  if (!of_model.empty()) {
    if (!options.front.rebuild) return TrialResult::kNotTried;
    absl::StatusOr<Model> rebuilt = options.front.rebuild(of_model);
    if (!rebuilt.ok()) return TrialResult::kRefused;
    changed = *std::move(rebuilt);
    options = IsPlannedProgram() ? OptionsForPlan(changed->options) : changed->options;
  }
  for (MemoryAdvice advice : all) Follow(advice, options);
  return CompileAgain(changed ? changed->graph : graph, std::move(options), before);
}

}  // namespace

uint32_t ReplicasOfInstance(const CompileOptions& options) {
  const uint32_t replicas = options.front.instance_replicas;
  return replicas == 0 ? options.total_replicas : replicas;
}

model::Topology TopologyOf(const CompileOptions& options) {
  return {.num_replicas = options.total_replicas, .ipus_per_replica = options.ipus_per_replica};
}

absl::StatusOr<std::string> WhyNotFit(const graph::Graph& graph, const CompileOptions& options,
                                      const program::Executable& executable,
                                      const model::MemoryVerdict& verdict,
                                      const BeforeStep& before) {
  if (const int64_t instructions = InstructionsOf(executable); instructions > kMostInstructions) {
    return model::UntriedOutOfMemoryMessage(
        verdict, options.front.names,
        absl::StrCat("compiling ", instructions, " instructions takes too long"));
  }
  absl::Status stopped;
  const auto unless_stopped = [&](absl::string_view) {
    stopped = before("Trying what fits");
    return stopped;
  };
  std::string message = model::OutOfMemoryMessage(
      verdict, NamesWithValues(options), [&](const std::vector<MemoryAdvice>& advice) {
        if (!stopped.ok()) return TrialResult::kNotTried;
        return Try(graph, options, advice, unless_stopped);
      });
  VPOD_RETURN_IF_ERROR(stopped);
  return message;
}

}  // namespace vpod::compiler
