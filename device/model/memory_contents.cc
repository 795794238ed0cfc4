#include "device/model/memory_contents.h"

#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

using program::v1::Origin;

// Whether an instruction computes what it gives, so that it can do it again.
bool Computes(const Instruction& instruction) {
  return !instruction.has_stream_in() && !instruction.has_exchange() &&
         !instruction.has_remote_load() && !instruction.has_dynamic_slice();
}

}  // namespace

absl::string_view Name(MemoryContents contents) {
  switch (contents) {
    case MemoryContents::kOther:
      return "other";
    case MemoryContents::kWeight:
      return "weight";
    case MemoryContents::kState:
      return "optimizer state";
    case MemoryContents::kAccumulator:
      return "accumulator";
    case MemoryContents::kUpdate:
      return "update";
    case MemoryContents::kKept:
      return "kept";
    case MemoryContents::kRecomputed:
      return "recomputed";
    case MemoryContents::kStash:
      return "stash";
    case MemoryContents::kValue:
      return "value";
  }
  return "";
}

MemoryContents MemoryContentsNamed(absl::string_view name) {
  for (int i = 0; i <= static_cast<int>(MemoryContents::kValue); ++i) {
    if (Name(static_cast<MemoryContents>(i)) == name) return static_cast<MemoryContents>(i);
  }
  return MemoryContents::kOther;
}

MemoryContentsOf::MemoryContentsOf(const program::Executable& executable, uint32_t ipu)
    : executable_(executable), ipu_(ipu), text_(executable.proto().ipus(static_cast<int>(ipu))) {
  for (int f = 0; f < text_.functions_size(); ++f) {
    const auto& instructions = text_.functions(f).instructions();
    for (int i = 0; i < instructions.size(); ++i) {
      const Instruction& instruction = instructions[i];
      const Origin* origin =
          executable.OriginOf(ipu, static_cast<uint32_t>(f), static_cast<uint32_t>(i));
      // Replicas that share out an update gather the parts of weights.
      if (instruction.has_all_gather() && origin != nullptr && origin->phase() == Origin::UPDATE) {
        for (uint32_t weight : instruction.outputs()) weights_.insert(PlaceOf(weight));
      }
      if (!FindPlan(instruction.attributes_case())->optimizer) continue;
      weights_.insert(PlaceOf(instruction.inputs(0)));
      for (int s = 1; s < instruction.outputs_size(); ++s)
        states_.insert(PlaceOf(instruction.outputs(s)));
    }
  }
}

uint64_t MemoryContentsOf::PlaceOf(uint32_t tensor) const {
  return text_.tensors(static_cast<int>(tensor)).offset();
}

MemoryContents MemoryContentsOf::Tensor(uint32_t tensor) const {
  const uint64_t place = PlaceOf(tensor);
  if (states_.contains(place)) return MemoryContents::kState;
  return weights_.contains(place) ? MemoryContents::kWeight : MemoryContents::kOther;
}

MemoryContents MemoryContentsOf::Value(const LiveValue& value,
                                       const std::vector<InstructionPlace>& steps) const {
  const InstructionPlace first = steps[value.maker], last = steps[value.last];
  const Origin *maker = executable_.OriginOf(ipu_, first.function, first.index),
               *reader = executable_.OriginOf(ipu_, last.function, last.index);
  const Instruction& instruction =
      text_.functions(static_cast<int>(first.function)).instructions(static_cast<int>(first.index));
  if (text_.tensors(static_cast<int>(value.tensor)).wide_accumulator() ||
      (maker != nullptr && maker->phase() == Origin::UPDATE))
    return instruction.has_fill() ? MemoryContents::kAccumulator : MemoryContents::kUpdate;
  if (maker == nullptr) return MemoryContents::kValue;
  const bool again = maker->phase() == Origin::RECOMPUTE;
  if (!again && maker->phase() != Origin::FORWARD) return MemoryContents::kValue;
  if (maker->op() == "stash") return MemoryContents::kStash;
  const bool waits = reader != nullptr && reader->phase() == Origin::BACKWARD;
  if (!waits || !Computes(instruction)) return MemoryContents::kValue;
  return again ? MemoryContents::kRecomputed : MemoryContents::kKept;
}

}  // namespace vpod::model
