#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status CheckFill(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, tensors.Any(instruction.fill().output()));
  const double value = instruction.fill().value();
  double low = 0, high = 0;
  switch (tensor->type()) {
    case v1::INT32:
      low = -2147483648.0;
      high = 2147483647.0;
      break;
    case v1::UINT32:
      high = 4294967295.0;
      break;
    case v1::UINT8:
      high = 255;
      break;
    case v1::BOOL:
      high = 1;
      break;
    default:
      return absl::OkStatus();
  }
  if (value >= low && value <= high && value == static_cast<double>(static_cast<int64_t>(value)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("fill value ", value, " is not of type ", Name(tensor->type())));
}

absl::Status CheckCopy(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(TensorType input, tensors.Plain(instruction.copy().input()));
  VPOD_ASSIGN_OR_RETURN(TensorType output, tensors.Plain(instruction.copy().output()));
  if (input.type == output.type && input.elements() == output.elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot copy ", input.ToString(), " to ", output.ToString()));
}

absl::Status CheckCast(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(TensorType input, tensors.Plain(instruction.cast().input()));
  VPOD_ASSIGN_OR_RETURN(TensorType output, tensors.Plain(instruction.cast().output()));
  return tensors.Expect(instruction.cast().output(), {output.type, input.dims});
}

}  // namespace

std::vector<OpDef> DataMovementOps() {
  const std::vector<Operand> in_out = {{"input", Access::kRead}, {"output", Access::kWrite}};
  return {
      {v1::Instruction::kFill, Role::kKernel, {{"output", Access::kWrite}}, CheckFill},
      {v1::Instruction::kCopy, Role::kKernel, in_out, CheckCopy},
      {v1::Instruction::kCast, Role::kKernel, in_out, CheckCast},
  };
}

}  // namespace vpod::program
