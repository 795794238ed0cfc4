// The printed form of a lowered program. It holds all that assembly reads.
//
//   program "train" device_iterations 1 accumulation 4
//   stream "x" to device : float32[2,3] on IPU 0
//   IPU 0
//   %0 : float32[2,3] strides [3,1] in storage 0 at 0
//   %1 : float32[3] strides [1] in storage 1 at 0 variable "w"
//   body:
//     %0 = stream_in { } () from { scope: "x" op: "stream_in" }
//   …
//   update if %7:
//     …
//   move %9 on IPU 0 to %2 on IPU 1
//
// A pipeline has "pipeline period 1 positions 7" in its second line, "cycle:" and "position 3:" in
// the place of "body:", then "pinned [3,7]", and moves "… at position 3".
//
// Streams and moves are numbered in their order, as instructions refer to them; protobuf's text
// format leaves out a number of 0.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/compiler/lowering.h"

namespace vpod::compiler {

std::string Print(const LoweredProgram& program);

// A program with the same printed form, of which assembly makes the same part of an executable.
// InvalidArgument with the line's number and what was expected there.
absl::StatusOr<LoweredProgram> ReadLowered(absl::string_view text);

}  // namespace vpod::compiler
