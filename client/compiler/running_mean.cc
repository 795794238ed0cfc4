// The part of Update that accumulates gradients as a running mean (GradientReduction).
#include <utility>
#include <vector>

#include "client/compiler/update.h"

namespace vpod::compiler {

using graph::Value;
using program::v1::Instruction;
using program::v1::Origin;

// The factors of a micro-batch are ready when it comes, so that the first operation reads the
// gradient: the others follow it in a pipeline.
void Update::EmitRunningMean(const Use& use, uint32_t gradient) {
  const uint32_t ipu = graph_.values()[graph_.variables()[use.variable].id].ipu;
  const program::TensorType type = placement_.TensorAt(ipu, gradient).type;
  const uint32_t mean = Cleared(ipu, type.dims, 0), count = Cleared(ipu, {}, 1),
                 kept = Cleared(ipu, {}, 0), share = Cleared(ipu, {}, 1), one = Constant(ipu, 1);
  const auto emit = [&](Instruction instruction, std::vector<uint32_t> inputs, uint32_t output) {
    instruction.mutable_inputs()->Add(inputs.begin(), inputs.end());
    instruction.add_outputs(output);
    placement_.Emit(ipu, Section::kBody, std::move(instruction));
    return output;
  };
  const auto binary = [&](program::v1::BinaryOperator op, uint32_t a, uint32_t b, uint32_t output) {
    Instruction instruction;
    instruction.mutable_binary()->set_operator_(op);
    return emit(std::move(instruction), {a, b}, output);
  };
  const auto temporary = [&](const program::Dims& dims) {
    return placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, dims}});
  };
  if (type.type != program::v1::FLOAT32) {
    Instruction cast;
    cast.mutable_cast()->set_type(program::v1::FLOAT32);
    gradient = emit(std::move(cast), {gradient}, temporary(type.dims));
  }
  using namespace program::v1;
  const uint32_t added = binary(MULTIPLY, gradient, share, temporary(type.dims)),
                 old = binary(MULTIPLY, mean, kept, temporary(type.dims));
  binary(ADD, old, added, mean);
  Instruction copy;
  copy.mutable_copy();
  const uint32_t before = emit(std::move(copy), {count}, temporary({}));
  binary(ADD, count, one, count);
  binary(DIVIDE, before, count, kept);
  binary(DIVIDE, one, count, share);
  running_means_[use.variable].push_back(mean);
}

uint32_t Update::SumOfRunningMeans(size_t v) {
  const std::vector<uint32_t>& means = running_means_.at(v);
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  uint32_t sum = means[0];
  for (size_t use = 1; use < means.size(); ++use) {
    Instruction add;
    add.mutable_binary()->set_operator_(program::v1::ADD);
    add.add_inputs(sum);
    add.add_inputs(means[use]);
    sum = placement_.NewTensor(
        variable.ipu,
        {.type = {program::v1::FLOAT32, placement_.TensorAt(variable.ipu, means[0]).type.dims}});
    add.add_outputs(sum);
    placement_.Emit(variable.ipu, Section::kReduce, std::move(add));
  }
  return sum;
}

uint32_t Update::Cleared(uint32_t ipu, const program::Dims& dims, float value) {
  const uint32_t tensor = placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, dims}});
  Instruction clear;
  clear.mutable_fill()->set_value(value);
  clear.add_outputs(tensor);
  placement_.Emit(ipu, Section::kClear, std::move(clear));
  // One micro-batch leaves it to the next.
  placement_.ipu(ipu).pinned.insert(placement_.TensorAt(ipu, tensor).storage);
  return tensor;
}

}  // namespace vpod::compiler
