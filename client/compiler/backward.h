// The first pass: a program of a graph, with the gradients of its loss.
#pragma once

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/compiler/graph_program.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

// The program of a checked graph, which stays as it is. A program that trains gets the gradients of
// its loss, as the update takes them, and the values that its roundings read. A program that does
// not train keeps only the assignments that count micro-batches. InvalidArgument or Unimplemented:
// an operation's gradient is missing. InvalidArgument: the loss depends on no variable.
absl::StatusOr<GraphProgram> AddGradients(const graph::Graph& graph, const ProgramSpec& spec,
                                          const CompileOptions& options);

}  // namespace vpod::compiler
