#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status CheckFill(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, tensors.Any(instruction.outputs(0)));
  return CheckValue(instruction.fill().value(), tensor->type());
}

absl::StatusOr<TensorType> PaddedType(const v1::Pad& op, const TensorType& input) {
  VPOD_RETURN_IF_ERROR(CheckValue(op.value(), input.type));
  if (op.before_size() != input.rank() || op.after_size() != input.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding of ", input.ToString(), " needs ", input.rank(),
                     " entries before and after, one for each dimension"));
  }
  TensorType output = input;
  for (int i = 0; i < input.rank(); ++i) {
    for (int64_t padding : {op.before(i), op.after(i)}) {
      if (padding < 0 || padding > kMaxElements) {
        return absl::InvalidArgumentError(
            absl::StrCat("padding ", padding, " is outside 0 to ", kMaxElements));
      }
      output.dims[static_cast<size_t>(i)] += padding;
    }
  }
  VPOD_RETURN_IF_ERROR(Check(output));
  return output;
}

absl::StatusOr<TensorType> ConcatenatedType(uint32_t axis, absl::Span<const TensorType> inputs) {
  TensorType output = inputs[0];
  if (axis >= output.dims.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(output.ToString(), " has no axis ", axis, " to concatenate along"));
  }
  for (const TensorType& input : inputs.subspan(1)) {
    TensorType expected = inputs[0];
    if (axis < input.dims.size()) expected.dims[axis] = input.dims[axis];
    if (input != expected) {
      return absl::InvalidArgumentError(absl::StrCat(inputs[0].ToString(), " and ",
                                                     input.ToString(),
                                                     " do not concatenate along axis ", axis));
    }
    output.dims[axis] += input.dims[axis];
    VPOD_RETURN_IF_ERROR(Check(output));
  }
  return output;
}

}  // namespace

std::vector<OpDef> DataMovementOps() {
  return {
      {.kind = v1::Instruction::kFill,
       .role = Role::kKernel,
       .outputs = {1, 1},
       .check = CheckFill,
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kCopy,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return Types{inputs[0]}; },
       .flops_per_operation = 0,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kPad,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return OneOutput(PaddedType(instruction.pad(), inputs[0])); },
       .flops_per_operation = 0,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kConcat,
       .role = Role::kKernel,
       .inputs = {1, kAnyNumber},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(ConcatenatedType(instruction.concat().axis(), inputs));
       },
       .flops_per_operation = 0,
       .layout = AnyLayout},
  };
}

}  // namespace vpod::program
