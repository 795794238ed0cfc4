#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status CheckCondition(const v1::Instruction& instruction, const Operands& tensors) {
  return tensors.Expect(instruction.inputs(0), {v1::BOOL, {}});
}

absl::Status CheckRepeat(const v1::Instruction& instruction, const Operands& tensors) {
  if (instruction.repeat().count() < 1)
    return absl::InvalidArgumentError("repeat count must be 1 or more");
  if (instruction.outputs_size() == 0) return absl::OkStatus();
  return tensors.Expect(instruction.outputs(0), {v1::INT32, {}});
}

absl::Status CheckIf(const v1::Instruction& instruction, const Operands& tensors) {
  if (!instruction.if_().has_then_function() && !instruction.if_().has_else_function())
    return absl::InvalidArgumentError("an if needs a function");
  return CheckCondition(instruction, tensors);
}

absl::Status CheckWhile(const v1::Instruction& instruction, const Operands& tensors) {
  if (instruction.while_().max_rounds() < 1)
    return absl::InvalidArgumentError("a while needs a max_rounds of 1 or more");
  return CheckCondition(instruction, tensors);
}

}  // namespace

// The functions that they execute are checked by Validate.
std::vector<OpDef> ControlOps() {
  return {
      {.kind = v1::Instruction::kCall,
       .role = Role::kControl,
       .check = [](const v1::Instruction&, const Operands&) { return absl::OkStatus(); },
       .form = Form::kAssembled},
      {.kind = v1::Instruction::kRepeat,
       .role = Role::kControl,
       .outputs = {0, 1},
       .check = CheckRepeat,
       .form = Form::kAssembled},
      {.kind = v1::Instruction::kIf,
       .role = Role::kControl,
       .inputs = {1, 1},
       .check = CheckIf,
       .form = Form::kAssembled},
      {.kind = v1::Instruction::kWhile,
       .role = Role::kControl,
       .inputs = {1, 1},
       .check = CheckWhile,
       .form = Form::kAssembled},
  };
}

}  // namespace vpod::program
