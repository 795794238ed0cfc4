#include "device/program/op.h"

namespace vpod::program {

std::vector<OpDef> ControlOps() {
  // The body and its depth are checked by Validate.
  return {{v1::Instruction::kRepeat,
           Role::kControl,
           {},
           [](const v1::Instruction& instruction, const Operands&) -> absl::Status {
             if (instruction.repeat().count() < 1)
               return absl::InvalidArgumentError("repeat count must be 1 or more");
             // Empty rounds take time and would be in no count.
             if (instruction.repeat().body().empty())
               return absl::InvalidArgumentError("a repeat needs a body");
             return absl::OkStatus();
           }}};
}

}  // namespace vpod::program
