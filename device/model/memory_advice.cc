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
  MemoryAdviser(const program::Executable& executable, uint32_t ipu, const IpuMemory& memory,
                const PlanContext& context)
      : executable_(executable), ipu_(ipu), memory_(memory), contents_(executable, ipu) {
    const auto& variables = executable.proto().variables();
    if (std::none_of(variables.begin(), variables.end(),
                     [](const auto& variable) { return variable.shards() > 1; }))
      replicas_ = context.topology().num_replicas;
    for (uint32_t each = 0; each < executable.ipus_per_replica(); ++each) LookAtProgram(each);
    for (const TileTensor& on_tile : OnFullestTile(memory, context)) Add(on_tile);
    if (memory.program < memory.temporary_bytes.size() &&
        memory.step < memory.temporary_bytes[memory.program].size())
      temporary_ = memory.temporary_bytes[memory.program][memory.step];
  }

  std::string Advise() const {
    // Values that are kept as bytes have the same types as the rest.
    const uint64_t floats = single_ + half_,
                   of_bytes = floats == 0 ? 0 : stashed_ * single_ / floats;
    const uint64_t again = recomputes_ ? kept_ : kept_ + stashed_;
    // Precision, micro-batch and memory proportion can be halved.
    // Names in brackets are those of compiler::CompileOptions and compiler::ProgramSpec.
    std::vector<std::pair<uint64_t, const char*>> savings = {
        {(single_ + of_bytes) / 2, "float16"},
        {again, some_ipu_recomputes_ ? "more recomputation (option recomputation)"
                                     : "recomputation (option recomputation)"},
        {kept_ + stashed_, "activations off the chip (option off_chip_activations)"},
        {values_ / 2,
         trains_ ? "a smaller micro-batch with more gradient accumulation (option accumulation)"
                 : "a smaller micro-batch"},
        {temporary_ / 2,
         "a smaller memory proportion of products (option products.memory_proportions)"},
        {state_, "the state of the optimiser off the chip (option off_chip_optimizer_state)"},
        {state_ - state_ / replicas_,
         "the state of the optimiser shared out among replicas (option tensor_shards)"},
        {state_ / 2, "an optimiser with less state"},
        {weights_, "weights off the chip (option off_chip_weights)"},
        {accumulators_, "accumulators off the chip (option off_chip_accumulators)"}};
    const uint64_t total = memory_.tiles[memory_.fullest].total();
    std::erase_if(savings, [&](const auto& saving) { return saving.first * kWorthTrying < total; });
    std::stable_sort(savings.begin(), savings.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (executable_.ipus_per_replica() < arch::kMaxIpusPerReplica)
      savings.emplace_back(0, "more IPUs per replica (option ipus_per_replica)");
    return absl::StrJoin(savings, ", ",
                         [](std::string* out, const auto& saving) { out->append(saving.second); });
  }

 private:
  const program::v1::Ipu& TextOf(uint32_t ipu) const {
    return executable_.proto().ipus(static_cast<int>(ipu));
  }

  void LookAtProgram(uint32_t ipu) {
    const auto& functions = TextOf(ipu).functions();
    for (uint32_t f = 0; f < static_cast<uint32_t>(functions.size()); ++f) {
      const auto& instructions = functions[static_cast<int>(f)].instructions();
      for (uint32_t i = 0; i < static_cast<uint32_t>(instructions.size()); ++i) {
        const Instruction& instruction = instructions[static_cast<int>(i)];
        const Origin* origin = executable_.OriginOf(ipu, f, i);
        const bool recomputes = origin != nullptr && origin->phase() == Origin::RECOMPUTE;
        some_ipu_recomputes_ = some_ipu_recomputes_ || recomputes;
        recomputes_ = recomputes_ || (recomputes && ipu == ipu_);
        trains_ = trains_ || FindPlan(instruction.attributes_case())->optimizer;
      }
    }
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
      case MemoryContents::kStash:
        stashed_ += on_tile.bytes;
        values_ += on_tile.bytes;
        break;
      case MemoryContents::kValue:
        values_ += on_tile.bytes;
        break;
    }
    const auto type = TextOf(ipu_).tensors(static_cast<int>(on_tile.tensor)).type();
    if (type == program::v1::FLOAT32) single_ += on_tile.bytes;
    if (type == program::v1::FLOAT16) half_ += on_tile.bytes;
  }

  const program::Executable& executable_;
  const uint32_t ipu_;
  const IpuMemory& memory_;
  const MemoryContentsOf contents_;
  uint64_t replicas_ = 1;  // that may share the state out among them
  bool trains_ = false, recomputes_ = false, some_ipu_recomputes_ = false;
  // Bytes: of floats, without what has its precision from the optimiser; of values that grow with
  // the micro-batch; of those, results kept for gradients, and what stages keep as bytes for later
  // micro-batches; of weights that are trained; of the sums of their gradients; of the optimiser's
  // state; received and added up.
  uint64_t single_ = 0, half_ = 0, values_ = 0, kept_ = 0, stashed_ = 0, weights_ = 0,
           accumulators_ = 0, state_ = 0, temporary_ = 0;
};

}  // namespace

std::string MemoryAdvice(const program::Executable& executable, uint32_t ipu,
                         const IpuMemory& memory, const PlanContext& context) {
  return MemoryAdviser(executable, ipu, memory, context).Advise();
}

}  // namespace vpod::model
