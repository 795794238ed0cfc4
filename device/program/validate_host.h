// The part of validation that is about what the host moves and sees. The IPUs and their tensors
// have been checked.
#pragma once

#include "absl/status/status.h"
#include "device/program/executable.h"

namespace vpod::program {

// InvalidArgument names the stream.
absl::Status ValidateStreams(const v1::Executable& executable, const Limits& limits);
// Variables and remote buffers, whose names are unique among both. InvalidArgument names the one
// that is wrong.
absl::Status ValidateState(const v1::Executable& executable, const Limits& limits);

}  // namespace vpod::program
