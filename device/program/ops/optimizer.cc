#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

absl::Status CheckAccumulate(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* accumulator, tensors.Any(instruction.inputs(0)));
  VPOD_ASSIGN_OR_RETURN(const TensorType gradient, tensors.Plain(instruction.inputs(1)));
  if (accumulator->wide_accumulator() && IsFloat(gradient.type) &&
      TypeOf(*accumulator).dims == gradient.dims)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", instruction.inputs(0), " is not a wide accumulator for ", gradient.ToString()));
}

// Inputs: weights, gradient, hyper-parameters, loss scale and, with state, the step and the state.
// Returns the types of what is updated: weights and state.
absl::StatusOr<Types> UpdatedTypes(absl::string_view optimizer, int64_t hyper_parameters,
                                   absl::Span<const TensorType> inputs) {
  const TensorType &weights = inputs[0], &gradient = inputs[1];
  if (!IsFloat(weights.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(optimizer, " does not update ", weights.ToString()));
  }
  VPOD_RETURN_IF_ERROR(CheckInput(
      "gradient", gradient, {IsFloat(gradient.type) ? gradient.type : v1::FLOAT32, weights.dims}));
  VPOD_RETURN_IF_ERROR(
      CheckInput("hyper-parameter vector", inputs[2], {v1::FLOAT32, {hyper_parameters}}));
  VPOD_RETURN_IF_ERROR(CheckInput("loss scale", inputs[3], {v1::FLOAT32, {}}));
  Types updated = {weights};
  if (inputs.size() == 5) {
    return absl::InvalidArgumentError(absl::StrCat(
        optimizer, " takes 4 inputs, or a step and state behind them, not a step alone"));
  }
  if (inputs.size() > 5) VPOD_RETURN_IF_ERROR(CheckInput("step", inputs[4], {v1::FLOAT32, {}}));
  for (size_t i = 5; i < inputs.size(); ++i) {
    VPOD_RETURN_IF_ERROR(CheckInput("state", inputs[i], {v1::FLOAT32, weights.dims}));
    updated.push_back(inputs[i]);
  }
  return updated;
}

absl::Status CheckUpdateLossScale(const v1::UpdateLossScale& op) {
  if (!(op.growth() > 1 && std::isfinite(op.growth())))
    return absl::InvalidArgumentError(absl::StrCat("growth is ", op.growth(), ", must be above 1"));
  if (!(op.backoff() > 0 && op.backoff() < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("backoff is ", op.backoff(), ", must be above 0 and below 1"));
  }
  if (op.interval() < 1) return absl::InvalidArgumentError("interval is 0, must be 1 or more");
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> OptimizerOps() {
  return {
      {.kind = v1::Instruction::kAccumulate,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .check = CheckAccumulate,
       .form = Form::kLowered,
       .in_place = {{0, 0}}},
      {.kind = v1::Instruction::kSgd,
       .role = Role::kKernel,
       .inputs = {4, 6},
       .outputs = {1, 2},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return UpdatedTypes("SGD", 4, inputs); },
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}},
       .rounds = true},
      {.kind = v1::Instruction::kAdam,
       .role = Role::kKernel,
       .inputs = {7, 8},
       .outputs = {3, 4},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return UpdatedTypes("Adam", 5, inputs); },
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}, {2, 6}, {3, 7}},
       .rounds = true},
      {.kind = v1::Instruction::kAllFinite,
       .role = Role::kKernel,
       .inputs = {1, kAnyNumber},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         for (const TensorType& input : inputs) {
           if (!IsFloat(input.type)) {
             return absl::InvalidArgumentError(
                 absl::StrCat("all-finite does not take ", input.ToString(), ", must be floats"));
           }
         }
         return Types{{v1::BOOL, {}}};
       }},
      {.kind = v1::Instruction::kUpdateLossScale,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {2, 2},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckInput("loss scale", inputs[0], {v1::FLOAT32, {}}));
         VPOD_RETURN_IF_ERROR(CheckInput("count", inputs[1], {v1::INT32, {}}));
         VPOD_RETURN_IF_ERROR(CheckInput("condition", inputs[2], {v1::BOOL, {}}));
         VPOD_RETURN_IF_ERROR(CheckUpdateLossScale(instruction.update_loss_scale()));
         return Types{inputs[0], inputs[1]};
       },
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 1}}},
  };
}

}  // namespace vpod::program
