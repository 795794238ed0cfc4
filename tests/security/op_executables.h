// Executables of one operation each.
#pragma once

#include <cstdint>

#include "device/program/executable.h"
#include "tests/support/small_ops.h"

namespace vpod::testing {

// Adds a tensor at the end of the arena and returns its index.
uint32_t AddTensor(const program::TensorType& type, program::v1::Ipu& ipu,
                   bool wide_accumulator = false);

// An executable whose program "main" is the instruction, with what that needs: functions, a stream,
// a remote buffer. Its tensors are variables.
program::v1::Executable ExecutableOf(const SmallOp& op);

}  // namespace vpod::testing
