// The printed form of a program that is a graph. It holds all that later passes read. The initial
// values of variables and buffers are not in it.
//
//   program "train" ipus 1 replicas 1 device_iterations 1 accumulation 1
//   optimizer SGD learning_rate 0.01 momentum 0 …
//   reduction mean
//   %0 = input "x" : float32[2,3] on IPU 0
//   %1 = variable "w" : float32[3] on IPU 0
//   %2 = binary { operator: MULTIPLY } (%0, %1) : float32[2,3] on IPU 0 from { op: "multiply" }
//   …
//   output "y" %2
//   loss %3
//   backward from %5
//   gradient of %1: %9
//
// A value that no node makes stands before the first line that reads it: an input, variable, buffer
// or constant (`constant 0.5`, or `constant elements "0000803f00000040"`, hexadecimal), an alias of
// another value, or `dead` if the node that made it is left out. An alias is `reshape (%1)`, `stop
// (%1)`, or `pass_by (%1) gradient to %0`, where the line of %0 may be later or left out: its
// gradient has been added. For the same reason an output of a gradient region is a stop.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/compiler/graph_program.h"

namespace vpod::compiler {

std::string Print(const GraphProgram& program);

// A program with the same printed form, from which later passes make the same executable. Values
// keep their ids; its graph has no initial values. InvalidArgument with the line's number and what
// was expected there.
absl::StatusOr<GraphProgram> ReadGraph(absl::string_view text);

}  // namespace vpod::compiler
