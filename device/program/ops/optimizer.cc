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

absl::StatusOr<Types> SgdTypes(const v1::Instruction& instruction,
                               absl::Span<const TensorType> inputs) {
  const TensorType& weights = inputs[0];
  if (!IsFloat(weights.type)) {
    return absl::InvalidArgumentError(absl::StrCat("SGD does not update ", weights.ToString()));
  }
  VPOD_RETURN_IF_ERROR(CheckInput("gradient", inputs[1], weights));
  VPOD_RETURN_IF_ERROR(CheckInput("learning rate", inputs[2], {v1::FLOAT32, {}}));
  if (inputs.size() == 3) {
    if (instruction.sgd().momentum() != 0)
      return absl::InvalidArgumentError("momentum needs a velocity");
    return Types{weights};
  }
  VPOD_RETURN_IF_ERROR(CheckInput("velocity", inputs[3], weights));
  return Types{weights, weights};
}

}  // namespace

std::vector<OpDef> OptimizerOps() {
  return {
      {.kind = v1::Instruction::kAccumulate,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .check = CheckAccumulate,
       .in_place = {{0, 0}}},
      {.kind = v1::Instruction::kSgd,
       .role = Role::kKernel,
       .inputs = {3, 4},
       .outputs = {1, 2},
       .infer = SgdTypes,
       .in_place = {{0, 0}, {1, 3}}},
  };
}

}  // namespace vpod::program
