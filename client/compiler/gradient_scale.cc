// Emits the steps between the reduction of the gradients and the optimisers, on scalars: the
// automatic loss scale and the clipping of gradients.
#include <map>
#include <optional>

#include "client/compiler/update.h"

namespace vpod::compiler {

using program::v1::BinaryOperator;
using program::v1::Instruction;
using program::v1::Origin;

namespace {

LoweredTensor Scalar(program::v1::DataType type) { return {.type = {type, {}}}; }

}  // namespace

// A scalar constant; each is filled once.
uint32_t Update::Constant(uint32_t ipu, float value) {
  const auto [found, is_new] = constants_.try_emplace({ipu, value});
  if (!is_new) return found->second;
  Instruction fill;
  fill.mutable_fill()->set_value(static_cast<double>(value));
  fill.add_outputs(found->second = placement_.NewTensor(ipu, Scalar(program::v1::FLOAT32)));
  placement_.Emit(ipu, Section::kSetup, std::move(fill));
  return found->second;
}

// Emits an operation on two tensors, whose output is one that there is or a new scalar.
uint32_t Update::EmitBinary(uint32_t ipu, BinaryOperator op, uint32_t a, uint32_t b,
                            std::optional<uint32_t> output) {
  Instruction binary;
  binary.mutable_binary()->set_operator_(op);
  binary.add_inputs(a);
  binary.add_inputs(b);
  const bool flag = op == program::v1::LOGICAL_AND || op == program::v1::GREATER;
  const uint32_t result =
      output ? *output
             : placement_.NewTensor(ipu, Scalar(flag ? program::v1::BOOL : program::v1::FLOAT32));
  binary.add_outputs(result);
  placement_.Emit(ipu, Section::kReduce, std::move(binary));
  return result;
}

// Moves a scalar, unless it is there.
uint32_t Update::MoveScalar(uint32_t from_ipu, uint32_t scalar, uint32_t to_ipu) {
  if (from_ipu == to_ipu) return scalar;
  const uint32_t moved =
      placement_.NewTensor(to_ipu, Scalar(placement_.TensorAt(from_ipu, scalar).type.type));
  placement_.AddMove(Section::kReduce, from_ipu, scalar, to_ipu, moved);
  return moved;
}

// One gradient that is not finite keeps all IPUs from updating. All replicas decide alike, since
// they look at the reduced gradients.
void Update::EmitAutomaticLossScale(const std::map<uint32_t, Reduction>& reductions) {
  placement_.SetOrigin(kLossScaleName, Origin::UPDATE);
  const uint32_t home = graph_.values()[loss_scale_.id].ipu;
  std::optional<uint32_t> finite;  // on the loss scale's IPU
  for (const auto& [ipu, reduction] : reductions) {
    Instruction check;
    check.mutable_all_finite();
    check.mutable_inputs()->Add(reduction.gradients.begin(), reduction.gradients.end());
    const uint32_t flag = placement_.NewTensor(ipu, Scalar(program::v1::BOOL));
    check.add_outputs(flag);
    placement_.Emit(ipu, Section::kReduce, std::move(check));
    const uint32_t here = MoveScalar(ipu, flag, home);
    finite = finite ? EmitBinary(home, program::v1::LOGICAL_AND, *finite, here) : here;
  }
  for (const auto& [ipu, reduction] : reductions)
    placement_.ipu(ipu).update_condition = MoveScalar(home, *finite, ipu);
  Instruction adapt;
  const uint32_t scale = placement_.Place(loss_scale_.id, home);
  const uint32_t tracker = placement_.NewTensor(
      home, {.type = {program::v1::INT32, {}}, .variable = kGrowthTrackerName});
  for (uint32_t tensor : {scale, tracker, *finite}) adapt.add_inputs(tensor);
  for (uint32_t tensor : {scale, tracker}) adapt.add_outputs(tensor);
  adapt.mutable_update_loss_scale()->set_growth(spec_.automatic_loss_scale->growth);
  adapt.mutable_update_loss_scale()->set_backoff(spec_.automatic_loss_scale->backoff);
  adapt.mutable_update_loss_scale()->set_interval(spec_.automatic_loss_scale->interval);
  placement_.Emit(home, Section::kFinish, std::move(adapt));
}

// Gradients are here times the loss scale and not divided by the number of micro-batches yet, and
// so is the limit.
void Update::EmitClipValue(const std::map<uint32_t, Reduction>& reductions) {
  placement_.SetOrigin("clip_value", Origin::UPDATE);
  for (const auto& [ipu, reduction] : reductions) {
    const uint32_t most = EmitBinary(ipu, program::v1::MULTIPLY, LossScale(ipu),
                                     Constant(ipu, *spec_.clip_value / gradient_scale_));
    const uint32_t least = EmitBinary(ipu, program::v1::MULTIPLY, most, Constant(ipu, -1));
    for (uint32_t gradient : reduction.gradients) {
      EmitBinary(ipu, program::v1::MINIMUM, gradient, most, gradient);
      EmitBinary(ipu, program::v1::MAXIMUM, gradient, least, gradient);
    }
  }
}

// The optimisers divide gradients by the loss scale, and so by what the norm is too large by. A
// norm that is not finite clips nothing.
void Update::EmitClipNorm(const std::map<uint32_t, Reduction>& reductions) {
  placement_.SetOrigin("clip_norm", Origin::UPDATE);
  const uint32_t home = reductions.begin()->first;
  Instruction of_all;
  uint32_t total = 0;
  for (const auto& [ipu, reduction] : reductions) {
    Instruction norm;
    norm.mutable_norm();
    norm.mutable_inputs()->Add(reduction.gradients.begin(), reduction.gradients.end());
    const uint32_t here = placement_.NewTensor(ipu, Scalar(program::v1::FLOAT32));
    norm.add_outputs(here);
    placement_.Emit(ipu, Section::kReduce, std::move(norm));
    of_all.add_inputs(total = MoveScalar(ipu, here, home));
  }
  if (of_all.inputs_size() > 1) {
    of_all.mutable_norm();
    of_all.add_outputs(total = placement_.NewTensor(home, Scalar(program::v1::FLOAT32)));
    placement_.Emit(home, Section::kReduce, std::move(of_all));
  }
  const uint32_t one = Constant(home, 1);
  total = EmitBinary(home, program::v1::MULTIPLY, total, Constant(home, gradient_scale_));
  total = EmitBinary(home, program::v1::DIVIDE, total, LossScale(home));
  total = EmitBinary(home, program::v1::ADD, total, Constant(home, 1e-6f));  // as in PyTorch
  uint32_t factor = EmitBinary(home, program::v1::DIVIDE, Constant(home, *spec_.clip_norm), total);
  factor = EmitBinary(home, program::v1::MINIMUM, factor, one);
  Instruction select;
  select.mutable_select();
  select.add_inputs(EmitBinary(home, program::v1::GREATER, factor, Constant(home, 0)));
  select.add_inputs(factor);
  select.add_inputs(one);
  select.add_outputs(factor = placement_.NewTensor(home, Scalar(program::v1::FLOAT32)));
  placement_.Emit(home, Section::kReduce, std::move(select));
  for (const auto& [ipu, reduction] : reductions) {
    EmitBinary(ipu, program::v1::DIVIDE, LossScale(ipu), MoveScalar(home, factor, ipu),
               DivisorOf(ipu));
  }
}

// The tensor by which the optimisers on an IPU divide gradients.
uint32_t Update::DivisorOf(uint32_t ipu) {
  if (!spec_.clip_norm) return LossScale(ipu);
  const auto [found, is_new] = divisors_.try_emplace(ipu);
  if (is_new) found->second = placement_.NewTensor(ipu, Scalar(program::v1::FLOAT32));
  return found->second;
}

uint32_t Update::LossScale(uint32_t ipu) {
  if (!spec_.histogram_loss_scale)
    return loss_scale_.valid() ? placement_.Fetch(loss_scale_.id, ipu) : Constant(ipu, 1);
  const uint32_t home = graph_.values()[loss_scale_.id].ipu;
  const auto [scale, is_new] = scales_.try_emplace(ipu);
  if (is_new) scale->second = MoveScalar(home, scales_.at(home), ipu);
  return scale->second;
}

}  // namespace vpod::compiler
