#include "device/model/memory_advice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "device/arch/hardware.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

using program::v1::Instruction;
using program::v1::Origin;

struct AdviceText {
  MemoryAdvice advice;
  const char* text;
  std::string OptionNames::*option;
};
constexpr AdviceText kAdviceTexts[] = {
    {MemoryAdvice::kFloat16, "float16", &OptionNames::float16},
    {MemoryAdvice::kRecomputation, "recomputation", &OptionNames::recomputation},
    {MemoryAdvice::kMoreRecomputation, "more recomputation", &OptionNames::recomputation},
    {MemoryAdvice::kLessRecomputedAtOnce, "recomputation of less at once",
     &OptionNames::recomputation},
    {MemoryAdvice::kOffChipActivations, "activations off the chip",
     &OptionNames::off_chip_activations},
    {MemoryAdvice::kSmallerMicroBatch, "a smaller micro-batch", &OptionNames::micro_batch},
    {MemoryAdvice::kMoreAccumulation, "a smaller micro-batch with more gradient accumulation",
     &OptionNames::accumulation},
    {MemoryAdvice::kMemoryProportion, "a smaller memory proportion of products",
     &OptionNames::memory_proportions},
    {MemoryAdvice::kOffChipOptimizerState, "the state of the optimiser off the chip",
     &OptionNames::off_chip_optimizer_state},
    {MemoryAdvice::kTensorShards,
     "the state of the optimiser shared out among the replicas of each instance",
     &OptionNames::tensor_shards},
    {MemoryAdvice::kSmallerOptimizer, "an optimiser with less state", &OptionNames::optimizer},
    {MemoryAdvice::kOffChipWeights, "weights off the chip", &OptionNames::off_chip_weights},
    {MemoryAdvice::kOffChipAccumulators, "accumulators off the chip",
     &OptionNames::off_chip_accumulators},
    {MemoryAdvice::kMoreIpus, "more IPUs per replica", &OptionNames::ipus_per_replica},
    {MemoryAdvice::kMoreIpusSharded, "more IPUs per replica without a pipeline",
     &OptionNames::ipus_without_pipeline}};

// Twice as many. A pipeline divides what belongs to weights, but holds more micro-batches at once.
MemorySaving OfMoreIpus(const ProgramFeatures& features, const MemoryInUse& memory) {
  const double of_weights = memory.weights + memory.state + memory.accumulators,
               of_all = (of_weights + memory.values) / 2 / memory.total;
  const bool is_alone = features.ipus_per_replica == 1;
  if (features.ipus_per_replica >= arch::kMaxIpusPerReplica) return {0, MemoryAdvice::kMoreIpus};
  if (!features.trains || (!is_alone && !features.is_pipeline))
    return {of_all, MemoryAdvice::kMoreIpus};
  const double by_pipeline = of_weights / 2 / memory.total;
  if (by_pipeline * kWorthTrying >= 1) return {by_pipeline, MemoryAdvice::kMoreIpus};
  return {of_all, MemoryAdvice::kMoreIpusSharded};
}

const char* ResultTogether(TrialResult result) {
  if (result == TrialResult::kFits) return " Together, what was tried fits.";
  if (result == TrialResult::kDoesNotFit) return " Even together, what was tried does not fit.";
  return "";
}

}  // namespace

void MemoryInUse::Add(MemoryContents contents, program::v1::DataType type, double bytes) {
  switch (contents) {
    case MemoryContents::kState:
      state += bytes;
      return;
    case MemoryContents::kAccumulator:
      accumulators += bytes;
      return;
    case MemoryContents::kUpdate:
      return;
    case MemoryContents::kOther:
      break;
    case MemoryContents::kWeight:
      weights += bytes;
      break;
    case MemoryContents::kKept:
      kept += bytes;
      values += bytes;
      break;
    case MemoryContents::kRecomputed:
      recomputed += bytes;
      values += bytes;
      break;
    case MemoryContents::kStash:
      stashed += bytes;
      values += bytes;
      break;
    case MemoryContents::kValue:
      values += bytes;
      break;
  }
  if (type == program::v1::FLOAT32) single += bytes;
  if (type == program::v1::FLOAT16) half += bytes;
}

void ProgramFeatures::Add(const OperationFeatures& operation) {
  trains |= operation.trains;
  recomputes |= operation.is_recomputed;
  if (operation.is_recomputed && operation.is_product) recomputes_products.insert(operation.ipu);
  if (!operation.is_stash) return;
  stores_activations |= operation.stores;
  is_pipeline |= ipus_per_replica > 1;
}

ProgramFeatures FeaturesOf(const program::Executable& executable, const Topology& topology) {
  ProgramFeatures features{.ipus_per_replica = executable.ipus_per_replica()};
  const auto add = [&](uint32_t ipu, const Instruction& instruction, const Origin* origin) {
    const bool is_product = instruction.has_convolution() || instruction.has_mat_mul();
    features.Add({.ipu = ipu,
                  .trains = FindPlan(instruction.attributes_case())->optimizer,
                  .is_product = is_product,
                  .is_recomputed = origin != nullptr && origin->phase() == Origin::RECOMPUTE,
                  .is_stash = origin != nullptr && origin->op() == "stash",
                  .stores = instruction.has_remote_store()});
    const auto& tensors = executable.proto().ipus(static_cast<int>(ipu)).tensors();
    features.is_half |= is_product && tensors[static_cast<int>(instruction.inputs(0))].type() ==
                                          program::v1::FLOAT16;
  };
  const auto& streams = executable.proto().streams();
  features.has_smallest_micro_batch =
      std::none_of(streams.begin(), streams.end(), [](const program::v1::Stream& stream) {
        return stream.to_device() && stream.dims_size() > 0 && stream.dims(0) > 1;
      });
  const auto& variables = executable.proto().variables();
  if (std::none_of(variables.begin(), variables.end(),
                   [](const auto& variable) { return variable.shards() > 1; }))
    features.replicas = topology.num_replicas;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    const auto& functions = executable.proto().ipus(static_cast<int>(ipu)).functions();
    for (int f = 0; f < functions.size(); ++f) {
      const auto& instructions = functions[f].instructions();
      for (int i = 0; i < instructions.size(); ++i)
        add(ipu, instructions[i],
            executable.OriginOf(ipu, static_cast<uint32_t>(f), static_cast<uint32_t>(i)));
    }
  }
  return features;
}

std::vector<MemorySaving> MemorySavings(const ProgramFeatures& features, uint32_t ipu,
                                        const MemoryInUse& memory) {
  // Values that are kept as bytes have the same types as the rest.
  const double floats = memory.single + memory.half,
               of_bytes = floats == 0 ? 0 : memory.stashed * memory.single / floats;
  // Where products are computed again, all is that can be, but maybe less of it at once, if all of
  // a part of the program is computed again from its inputs.
  constexpr double kFew = 20;
  const bool recomputes_products = features.recomputes_products.contains(ipu),
             keeps_nothing = memory.kept_at_some_time * kFew < memory.recomputed_at_some_time;
  const double waiting = memory.kept + memory.stashed;
  // A pipeline stores what waits for later micro-batches.
  const double off_chip = features.stores_activations ? 0
                          : features.is_pipeline      ? memory.stashed
                                                      : waiting;
  const double of_replicas = memory.state - memory.state / features.replicas;
  // Precision, micro-batch and memory proportion can be halved.
  const std::pair<double, MemoryAdvice> bytes[] = {
      {features.is_half ? 0 : (memory.single + of_bytes) / 2, MemoryAdvice::kFloat16},
      {recomputes_products ? 0 : waiting,
       features.recomputes ? MemoryAdvice::kMoreRecomputation : MemoryAdvice::kRecomputation},
      {recomputes_products && keeps_nothing ? memory.recomputed : 0,
       MemoryAdvice::kLessRecomputedAtOnce},
      {off_chip, MemoryAdvice::kOffChipActivations},
      {features.has_smallest_micro_batch ? 0 : memory.values / 2,
       features.trains ? MemoryAdvice::kMoreAccumulation : MemoryAdvice::kSmallerMicroBatch},
      {memory.temporary / 2, MemoryAdvice::kMemoryProportion},
      {memory.state, MemoryAdvice::kOffChipOptimizerState},
      {of_replicas, MemoryAdvice::kTensorShards},
      {memory.state / 2, MemoryAdvice::kSmallerOptimizer},
      {memory.weights, MemoryAdvice::kOffChipWeights},
      {memory.accumulators, MemoryAdvice::kOffChipAccumulators}};
  std::vector<MemorySaving> savings;
  for (const auto& [saved, advice] : bytes) savings.push_back({saved / memory.total, advice});
  savings.push_back(OfMoreIpus(features, memory));
  // Nothing is saved of nothing, of which a part is not a number.
  std::erase_if(savings, [](const auto& saving) { return !(saving.part * kWorthTrying >= 1); });
  return savings;
}

std::vector<MemoryAdvice> AdviceOf(std::vector<MemorySaving> savings) {
  std::stable_sort(savings.begin(), savings.end(),
                   [](const auto& a, const auto& b) { return a.part > b.part; });
  std::vector<MemoryAdvice> advice;
  for (const MemorySaving& saving : savings) {
    if (std::find(advice.begin(), advice.end(), saving.advice) == advice.end())
      advice.push_back(saving.advice);
  }
  return advice;
}

namespace {

// Advice that can be followed together: state that an optimiser does not have cannot be moved, and
// IPUs are doubled once.
std::vector<MemoryAdvice> WithoutContradictions(std::vector<MemoryAdvice> advice) {
  const auto has = [&](MemoryAdvice each) {
    return std::find(advice.begin(), advice.end(), each) != advice.end();
  };
  const bool moves_state =
                 has(MemoryAdvice::kOffChipOptimizerState) || has(MemoryAdvice::kTensorShards),
             is_sharded = has(MemoryAdvice::kMoreIpusSharded);
  std::erase_if(advice, [&](MemoryAdvice each) {
    return (moves_state && each == MemoryAdvice::kSmallerOptimizer) ||
           (is_sharded && each == MemoryAdvice::kMoreIpus);
  });
  return advice;
}

}  // namespace

std::string TextOf(MemoryAdvice advice, const OptionNames& names) {
  const auto* row = std::find_if(std::begin(kAdviceTexts), std::end(kAdviceTexts),
                                 [&](const AdviceText& each) { return each.advice == advice; });
  std::string option = names.*row->option;
  if (advice == MemoryAdvice::kMoreAccumulation && !option.empty() && !names.micro_batch.empty())
    option = absl::StrCat(names.micro_batch, ", ", option);
  return option.empty() ? "" : absl::StrCat(row->text, " (", option, ")");
}

OptionNames OptionNamesOf(const program::Executable& executable) {
  return OptionNamesIn(executable.memory_options());
}

absl::string_view AdviceIn(absl::string_view message, const MemoryVerdict& verdict) {
  absl::ConsumePrefix(&message, verdict.why);
  return absl::StripLeadingAsciiWhitespace(message);
}

std::string UntriedOutOfMemoryMessage(const MemoryVerdict& verdict, const OptionNames& names,
                                      absl::string_view why_not_tried) {
  std::vector<std::string> texts;
  for (const MemoryAdvice advice : verdict.advice) {
    if (std::string text = TextOf(advice, names); !text.empty()) texts.push_back(std::move(text));
  }
  if (texts.empty()) return verdict.why;
  return absl::StrCat(verdict.why, " To try: ", absl::StrJoin(texts, ", "),
                      ". None of this was tried, because ", why_not_tried, ".");
}

std::string OutOfMemoryMessage(const MemoryVerdict& verdict, const OptionNames& names,
                               const Trial& trial) {
  std::vector<std::string> lines;
  std::vector<MemoryAdvice> insufficient;
  bool does_one_fit = false, is_one_not_tried = false;
  for (const MemoryAdvice advice : verdict.advice) {
    const std::string text = TextOf(advice, names);
    if (text.empty()) continue;
    switch (trial({advice})) {
      case TrialResult::kFits:
        does_one_fit = true;
        lines.push_back(absl::StrCat(text, ": fits"));
        break;
      case TrialResult::kDoesNotFit:
        insufficient.push_back(advice);
        lines.push_back(absl::StrCat(text, ": not alone"));
        break;
      case TrialResult::kRefused:
        break;
      case TrialResult::kNotTried:
        is_one_not_tried = true;
        lines.push_back(absl::StrCat(text, ": not tried"));
        break;
    }
  }
  if (lines.empty()) return verdict.why;
  std::string message = absl::StrCat(verdict.why, " To try: ", absl::StrJoin(lines, ", "), ".");
  if (!does_one_fit && insufficient.size() > 1)
    absl::StrAppend(&message, ResultTogether(trial(WithoutContradictions(insufficient))));
  if (is_one_not_tried)
    absl::StrAppend(&message, " Advice that was not tried takes a change of the model.");
  return message;
}

}  // namespace vpod::model
