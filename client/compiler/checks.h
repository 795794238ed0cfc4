// Checks a graph and the options of a compilation before anything is made of them.
#pragma once

#include "absl/status/status.h"
#include "client/compiler/compiler.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

// InvalidArgument names the program, value or operation, and what is allowed.
absl::Status CheckOptions(const CompileOptions& options);
absl::Status CheckGraph(const graph::Graph& graph, const CompileOptions& options);

}  // namespace vpod::compiler
