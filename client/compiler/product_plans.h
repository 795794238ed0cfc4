// The pass that says of each product and convolution how it is to be planned.
#pragma once

#include "absl/status/status.h"
#include "client/compiler/graph_program.h"

namespace vpod::compiler {

// InvalidArgument: a wrong type or proportion, or an IPU beyond the replica.
absl::Status CheckProductOptions(const CompileOptions& options);

// Operations keep what the graph says of them; float32 operands always have float32 partial
// results.
void SetProductPlans(GraphProgram& program, const ProductOptions& options);

}  // namespace vpod::compiler
