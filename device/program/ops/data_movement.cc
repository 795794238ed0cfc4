#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status CheckFill(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, tensors.Any(instruction.outputs(0)));
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

}  // namespace

std::vector<OpDef> DataMovementOps() {
  return {
      {.kind = v1::Instruction::kFill,
       .role = Role::kKernel,
       .outputs = {1, 1},
       .check = CheckFill},
      {.kind = v1::Instruction::kCopy,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return Types{inputs[0]}; },
       .layout = AnyLayout},
      {.kind = v1::Instruction::kCast,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         TensorType output{instruction.cast().type(), inputs[0].dims};
         VPOD_RETURN_IF_ERROR(Check(output));
         return Types{std::move(output)};
       },
       .layout = AnyLayout},
  };
}

}  // namespace vpod::program
