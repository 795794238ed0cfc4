#include "device/model/memory_advice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/model/memory_contents.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

using program::v1::Instruction;
using program::v1::Origin;

// The contents of the fullest tile when it needs most, and what would make them smaller.
class MemoryAdviser {
 public:
  MemoryAdviser(const program::Executable& executable, const ProgramFeatures& features,
                uint32_t ipu, const IpuMemory& memory, const PlanContext& context)
      : text_(executable.proto().ipus(static_cast<int>(ipu))),
        features_(features),
        num_ipus_(executable.ipus_per_replica()),
        recomputes_products_(features.recomputes_products.contains(ipu)),
        memory_(memory),
        contents_(executable, ipu) {
    const auto& variables = executable.proto().variables();
    if (std::none_of(variables.begin(), variables.end(),
                     [](const auto& variable) { return variable.shards() > 1; }))
      replicas_ = context.topology().num_replicas;
    for (const TileTensor& on_tile : OnFullestTile(memory, context)) Add(on_tile);
    if (recomputes_products_) keeps_nothing_ = KeepsNothing(context);
    if (memory.program < memory.temporary_bytes.size() &&
        memory.step < memory.temporary_bytes[memory.program].size())
      temporary_ = memory.temporary_bytes[memory.program][memory.step];
  }

  std::vector<MemorySaving> Savings() const {
    // Values that are kept as bytes have the same types as the rest.
    const uint64_t floats = single_ + half_,
                   of_bytes = floats == 0 ? 0 : stashed_ * single_ / floats;
    // Where products are computed again, all is that can be, but maybe less of it at once.
    const uint64_t again = recomputes_products_ ? 0 : kept_ + stashed_,
                   at_once = keeps_nothing_ ? recomputed_ : 0;
    // A pipeline stores what waits for later micro-batches.
    const uint64_t off_chip = features_.stores_activations ? 0
                              : features_.is_pipeline      ? stashed_
                                                           : kept_ + stashed_;
    // Precision, micro-batch and memory proportion can be halved.
    // Names in brackets are those of compiler::CompileOptions and compiler::ProgramSpec.
    const std::pair<uint64_t, const char*> savings[] = {
        {features_.is_half ? 0 : (single_ + of_bytes) / 2, "float16"},
        {again, features_.recomputes ? "more recomputation (option recomputation: standard)"
                                     : "recomputation (option recomputation: standard)"},
        {at_once, "recomputation of less at once (option recomputation: standard)"},
        {off_chip, "activations off the chip (option off_chip_activations)"},
        {features_.has_smallest_micro_batch ? 0 : values_ / 2,
         features_.trains
             ? "a smaller micro-batch with more gradient accumulation (option accumulation)"
             : "a smaller micro-batch"},
        {temporary_ / 2,
         "a smaller memory proportion of products (option products.memory_proportions)"},
        {state_, "the state of the optimiser off the chip (option off_chip_optimizer_state)"},
        {state_ - state_ / replicas_,
         "the state of the optimiser shared out among replicas (option tensor_shards)"},
        {state_ / 2, "an optimiser with less state"},
        {weights_, "weights off the chip (option off_chip_weights)"},
        {accumulators_, "accumulators off the chip (option off_chip_accumulators)"}};
    const auto total = static_cast<double>(memory_.tiles[memory_.fullest].total());
    std::vector<MemorySaving> parts;
    for (const auto& [bytes, advice] : savings)
      parts.push_back({static_cast<double>(bytes) / total, advice});
    parts.push_back(OfMoreIpus(total));
    return parts;
  }

 private:
  // Twice as many. A pipeline divides what belongs to weights, but holds more micro-batches at
  // once.
  MemorySaving OfMoreIpus(double total) const {
    constexpr char kMore[] = "more IPUs per replica (option ipus_per_replica)";
    const auto of_weights = static_cast<double>(weights_ + state_ + accumulators_),
               all = of_weights + static_cast<double>(values_);
    const bool is_alone = num_ipus_ == 1;
    if (num_ipus_ >= arch::kMaxIpusPerReplica) return {0, kMore};
    if (!features_.trains || (!is_alone && !features_.is_pipeline)) return {all / 2 / total, kMore};
    if (of_weights / 2 * kWorthTrying >= total) return {of_weights / 2 / total, kMore};
    return {all / 2 / total,
            "more IPUs per replica without a pipeline (options ipus_per_replica and schedule: "
            "sharded)"};
  }

  // Whether all of a part of the program is computed again from its inputs, at once.
  bool KeepsNothing(const PlanContext& context) const {
    constexpr uint64_t kFew = 20;
    const ProgramLiveness& program = memory_.liveness.programs[memory_.program];
    uint64_t kept = 0, again = 0;
    for (const LiveValue& value : program.values) {
      const MemoryContents contents = contents_.Value(value, program.steps);
      const uint64_t bytes = context.Type(value.tensor).bytes();
      if (contents == MemoryContents::kKept) kept += bytes;
      if (contents == MemoryContents::kRecomputed) again += bytes;
    }
    return kept * kFew < again;
  }

  void Add(const TileTensor& on_tile) {
    const MemoryContents contents =
        on_tile.value == nullptr
            ? contents_.Tensor(on_tile.tensor)
            : contents_.Value(*on_tile.value, memory_.liveness.programs[memory_.program].steps);
    switch (contents) {
      case MemoryContents::kState:
        state_ += on_tile.bytes;
        return;
      case MemoryContents::kAccumulator:
        accumulators_ += on_tile.bytes;
        return;
      case MemoryContents::kUpdate:
        return;
      case MemoryContents::kOther:
        break;
      case MemoryContents::kWeight:
        weights_ += on_tile.bytes;
        break;
      case MemoryContents::kKept:
        kept_ += on_tile.bytes;
        values_ += on_tile.bytes;
        break;
      case MemoryContents::kRecomputed:
        recomputed_ += on_tile.bytes;
        values_ += on_tile.bytes;
        break;
      case MemoryContents::kStash:
        stashed_ += on_tile.bytes;
        values_ += on_tile.bytes;
        break;
      case MemoryContents::kValue:
        values_ += on_tile.bytes;
        break;
    }
    const auto type = text_.tensors(static_cast<int>(on_tile.tensor)).type();
    if (type == program::v1::FLOAT32) single_ += on_tile.bytes;
    if (type == program::v1::FLOAT16) half_ += on_tile.bytes;
  }

  const program::v1::Ipu& text_;
  const ProgramFeatures& features_;
  const uint32_t num_ipus_;         // of a replica
  const bool recomputes_products_;  // on this IPU
  bool keeps_nothing_ = false;      // but computes it again
  const IpuMemory& memory_;
  const MemoryContentsOf contents_;
  uint64_t replicas_ = 1;  // that may share the state out among them
  // Bytes: of floats, without what has its precision from the optimiser; of values that grow with
  // the micro-batch; of those, results kept for gradients, those computed again, and what stages
  // keep as bytes for later micro-batches; of weights that are trained; of the sums of their
  // gradients; of the optimiser's state; received and added up.
  uint64_t single_ = 0, half_ = 0, values_ = 0, kept_ = 0, recomputed_ = 0, stashed_ = 0,
           weights_ = 0, accumulators_ = 0, state_ = 0, temporary_ = 0;
};

}  // namespace

ProgramFeatures FeaturesOf(const program::Executable& executable) {
  ProgramFeatures features;
  const auto add = [&](uint32_t ipu, const Instruction& instruction, const Origin* origin) {
    features.trains |= FindPlan(instruction.attributes_case())->optimizer;
    const bool is_product = instruction.has_convolution() || instruction.has_mat_mul();
    const auto& tensors = executable.proto().ipus(static_cast<int>(ipu)).tensors();
    features.is_half |= is_product && tensors[static_cast<int>(instruction.inputs(0))].type() ==
                                          program::v1::FLOAT16;
    if (origin == nullptr) return;
    if (origin->phase() == Origin::RECOMPUTE) {
      features.recomputes = true;
      if (is_product) features.recomputes_products.insert(ipu);
    }
    if (origin->op() == "stash") {
      features.stores_activations |= instruction.has_remote_store();
      features.is_pipeline |= executable.ipus_per_replica() > 1;
    }
  };
  const auto& streams = executable.proto().streams();
  features.has_smallest_micro_batch =
      std::none_of(streams.begin(), streams.end(), [](const program::v1::Stream& stream) {
        return stream.to_device() && stream.dims_size() > 0 && stream.dims(0) > 1;
      });
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

std::vector<MemorySaving> MemorySavings(const program::Executable& executable,
                                        const ProgramFeatures& features, uint32_t ipu,
                                        const IpuMemory& memory, const PlanContext& context) {
  return MemoryAdviser(executable, features, ipu, memory, context).Savings();
}

std::string MemoryAdvice(std::vector<MemorySaving> savings) {
  std::erase_if(savings, [](const auto& saving) { return saving.part * kWorthTrying < 1; });
  std::stable_sort(savings.begin(), savings.end(),
                   [](const auto& a, const auto& b) { return a.part > b.part; });
  std::vector<std::string> advice;
  for (MemorySaving& saving : savings) {
    if (std::find(advice.begin(), advice.end(), saving.advice) == advice.end())
      advice.push_back(std::move(saving.advice));
  }
  return absl::StrJoin(advice, ", ");
}

}  // namespace vpod::model
