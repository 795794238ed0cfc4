// Rules about where the operands of an instruction lie in the arena, for kernels whose chunks read
// an input again and again while others write.
#pragma once

#include "device/program/op.h"

namespace vpod::program {

// InvalidArgument if an output shares bytes with a tensor, which is called `name` in the message.
inline absl::Status CheckOutputsApart(const v1::Instruction& instruction, const Operands& tensors,
                                      uint32_t tensor, const std::string& name) {
  absl::StatusOr<const v1::Tensor*> read = tensors.Any(tensor);
  if (!read.ok()) return read.status();
  for (int i = 0; i < instruction.outputs_size(); ++i) {
    const auto output = tensors.Any(instruction.outputs(i));
    if (!output.ok()) return output.status();
    if (OutputsLieApart({RangeOf(**output, true), RangeOf(**read, false)})) continue;
    return absl::InvalidArgumentError("output " + std::to_string(i) + " shares bytes with " + name);
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
