#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kCount{"control_c1", "The count is 1 or more."};
constexpr Constraint kCounter{"control_c2", "The counter, if there is one, is an int32 scalar."};
constexpr Constraint kBranch{"control_c3", "There is a function for at least one of the cases."};
constexpr Constraint kRounds{"control_c4", "`max_rounds` is 1 or more."};
constexpr Constraint kCondition{"control_c5", "The condition is a bool scalar."};

absl::Status CheckCondition(const v1::Instruction& instruction, const Operands& tensors) {
  return Labelled(kCondition, tensors.Expect(instruction.inputs(0), {v1::BOOL, {}}));
}

absl::Status CheckRepeat(const v1::Instruction& instruction, const Operands& tensors) {
  if (instruction.repeat().count() < 1) return Broken(kCount, "repeat count must be 1 or more");
  if (instruction.outputs_size() == 0) return absl::OkStatus();
  return Labelled(kCounter, tensors.Expect(instruction.outputs(0), {v1::INT32, {}}));
}

absl::Status CheckIf(const v1::Instruction& instruction, const Operands& tensors) {
  if (!instruction.if_().has_then_function() && !instruction.if_().has_else_function())
    return Broken(kBranch, "an if needs a function");
  return CheckCondition(instruction, tensors);
}

absl::Status CheckWhile(const v1::Instruction& instruction, const Operands& tensors) {
  if (instruction.while_().max_rounds() < 1)
    return Broken(kRounds, "a while needs a max_rounds of 1 or more");
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
       .constraints = {kCount, kCounter},
       .form = Form::kAssembled},
      {.kind = v1::Instruction::kIf,
       .role = Role::kControl,
       .inputs = {1, 1},
       .check = CheckIf,
       .constraints = {kBranch, kCondition},
       .form = Form::kAssembled},
      {.kind = v1::Instruction::kWhile,
       .role = Role::kControl,
       .inputs = {1, 1},
       .check = CheckWhile,
       .constraints = {kRounds, kCondition},
       .form = Form::kAssembled},
  };
}

}  // namespace vpod::program
