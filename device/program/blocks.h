// Blocks: instructions that the functions of an IPU execute in several places, each with tensors of
// its own. They make executables of models with equal layers short, and say what is equal. Only
// Executable knows them: everything else sees their instructions in their places.
#pragma once

#include "absl/status/statusor.h"
#include "device/program/executable.h"

namespace vpod::program {

// Whether an executable has blocks, or calls some.
bool HasBlocks(const v1::Executable& executable);

// Host memory that WriteOut takes. InvalidArgument names a block, or a call that does not fit one,
// or the limit that is exceeded, which all IPUs share. The rest of the executable may be anything.
absl::StatusOr<uint64_t> WrittenOutBytes(const v1::Executable& executable, const Limits& limits);

// The executable with the instructions of each block in place of its calls, and without blocks.
// WrittenOutBytes has found nothing wrong.
v1::Executable WriteOut(const v1::Executable& executable);

}  // namespace vpod::program
