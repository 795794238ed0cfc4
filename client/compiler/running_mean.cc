// The part of Update that accumulates gradients otherwise than in wide accumulators: as a running
// mean (GradientReduction), and in float16 (ProgramSpec::float16_accumulators). Each use of a
// variable has an accumulator of its own, so that roundings do not depend on the order of the uses.
#include <utility>
#include <vector>

#include "client/compiler/update.h"

namespace vpod::compiler {

using graph::Value;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::Instruction;
using program::v1::Origin;

// The factors of a micro-batch are ready when it comes, so that the first operation reads the
// gradient: the others follow it in a pipeline.
void Update::EmitRunningMean(const Use& use, uint32_t gradient) {
  const uint32_t ipu = graph_.values()[graph_.variables()[use.variable].id].ipu;
  const program::TensorType type = placement_.TensorAt(ipu, gradient).type;
  const bool half = spec_.float16_accumulators;
  const program::TensorType number = {FLOAT32, {}};
  const uint32_t mean = Cleared(ipu, {half ? FLOAT16 : FLOAT32, type.dims}, 0),
                 count = Cleared(ipu, number, 1), kept = Cleared(ipu, number, 0),
                 share = Cleared(ipu, number, 1), one = Constant(ipu, 1);
  const auto emit = [&](Instruction instruction, std::vector<uint32_t> inputs, uint32_t output) {
    instruction.mutable_inputs()->Add(inputs.begin(), inputs.end());
    instruction.add_outputs(output);
    if (output == mean) rounding_.Apply(NewRoundingNumber(), ipu, Section::kBody, instruction);
    placement_.Emit(ipu, Section::kBody, std::move(instruction));
    return output;
  };
  const auto binary = [&](program::v1::BinaryOperator op, uint32_t a, uint32_t b, uint32_t output) {
    Instruction instruction;
    instruction.mutable_binary()->set_operator_(op);
    return emit(std::move(instruction), {a, b}, output);
  };
  const auto temporary = [&](const program::Dims& dims) {
    return placement_.NewTensor(ipu, {.type = {FLOAT32, dims}});
  };
  const auto cast = [&](uint32_t input, program::v1::DataType to, uint32_t output) {
    Instruction instruction;
    instruction.mutable_cast()->set_type(to);
    return emit(std::move(instruction), {input}, output);
  };
  if (type.type != FLOAT32) gradient = cast(gradient, FLOAT32, temporary(type.dims));
  using program::v1::ADD, program::v1::DIVIDE, program::v1::MULTIPLY;
  const uint32_t added = binary(MULTIPLY, gradient, share, temporary(type.dims)),
                 before = half ? cast(mean, FLOAT32, temporary(type.dims)) : mean,
                 old = binary(MULTIPLY, before, kept, temporary(type.dims));
  if (half) {
    cast(binary(ADD, old, added, temporary(type.dims)), FLOAT16, mean);
  } else {
    binary(ADD, old, added, mean);
  }
  Instruction copy;
  copy.mutable_copy();
  const uint32_t counted = emit(std::move(copy), {count}, temporary({}));
  binary(ADD, count, one, count);
  binary(DIVIDE, counted, count, kept);
  binary(DIVIDE, one, count, share);
  sums_of_uses_[use.variable].push_back(mean);
}

// A gradient is rounded to FLOAT16 before it is added, so that the first operation reads it, as
// above.
void Update::EmitFloat16Sum(const Use& use, uint32_t gradient) {
  const uint32_t ipu = graph_.values()[graph_.variables()[use.variable].id].ipu;
  const program::TensorType type = {FLOAT16, placement_.TensorAt(ipu, gradient).type.dims};
  const uint32_t sum = Cleared(ipu, type, 0);
  Instruction cast, add;
  if (placement_.TensorAt(ipu, gradient).type.type != FLOAT16) {
    cast.mutable_cast()->set_type(FLOAT16);
    cast.add_inputs(gradient);
    cast.add_outputs(gradient = placement_.NewTensor(ipu, {.type = type}));
    rounding_.Apply(NewRoundingNumber(), ipu, Section::kBody, cast);
    placement_.Emit(ipu, Section::kBody, std::move(cast));
  }
  add.mutable_binary()->set_operator_(program::v1::ADD);
  for (uint32_t input : {sum, gradient}) add.add_inputs(input);
  add.add_outputs(sum);
  rounding_.Apply(NewRoundingNumber(), ipu, Section::kBody, add);
  placement_.Emit(ipu, Section::kBody, std::move(add));
  sums_of_uses_[use.variable].push_back(sum);
}

uint32_t Update::SumOfUses(size_t v) {
  const std::vector<uint32_t>& sums = sums_of_uses_.at(v);
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  uint32_t sum = WidenedForReduction(variable.ipu, sums[0]);
  for (size_t use = 1; use < sums.size(); ++use) {
    Instruction add;
    add.mutable_binary()->set_operator_(program::v1::ADD);
    add.add_inputs(sum);
    add.add_inputs(WidenedForReduction(variable.ipu, sums[use]));
    sum = placement_.NewTensor(
        variable.ipu, {.type = {FLOAT32, placement_.TensorAt(variable.ipu, sums[0]).type.dims}});
    add.add_outputs(sum);
    placement_.Emit(variable.ipu, Section::kReduce, std::move(add));
  }
  return sum;
}

uint32_t Update::Cleared(uint32_t ipu, const program::TensorType& type, float value) {
  const uint32_t tensor = placement_.NewTensor(ipu, {.type = type});
  Instruction clear;
  clear.mutable_fill()->set_value(value);
  clear.add_outputs(tensor);
  placement_.Emit(ipu, Section::kClear, std::move(clear));
  // One micro-batch leaves it to the next.
  placement_.ipu(ipu).pinned.insert(placement_.TensorAt(ipu, tensor).storage);
  return tensor;
}

}  // namespace vpod::compiler
