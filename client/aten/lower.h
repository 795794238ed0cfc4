// ATen operators as operations of a graph: what a PyTorch front makes of the operators that it
// traces. The values are those of PyTorch 1.13; docs/aten.md lists the operators.
//
//   VPOD_ASSIGN_OR_RETURN(auto outputs, aten::Lower(graph, "add.Tensor", {x, y, 0.5}));
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/graph/graph.h"

namespace vpod::aten {

// An argument: None, a tensor, bool, int, float, str, or a list of ints (or bools), floats or
// tensors. A tensor of a list that is None is invalid. Types of elements are PyTorch's numbers of
// them (6 is float32); those of 64 bits become types of 32 bits, as host data do.
using Argument =
    std::variant<std::monostate, graph::Tensor, bool, int64_t, double, std::string,
                 std::vector<int64_t>, std::vector<double>, std::vector<graph::Tensor>>;

// Adds an operator, "add.Tensor" or "relu.default", with its arguments in the order of PyTorch's
// schema, keyword arguments as well; those at the end may be missing where PyTorch has a default.
// Gives its outputs; one that its output mask leaves out is invalid.
//
// A graph has values, not storage. An operator that works in place ("relu_.default") gives the new
// value of its first argument. Views are new values, too: a write through a view has to be traced
// as a write into what it views. Values that PyTorch updates in addition to its outputs come after
// the outputs: native_batch_norm.default has the new running mean and variance as outputs 3 and 4.
//
// Unimplemented for operators that are not in the table and for those whose results have dynamic
// shapes; InvalidArgument for arguments that do not fit. The graph goes on being usable.
absl::StatusOr<std::vector<graph::Tensor>> Lower(graph::Graph& graph, absl::string_view name,
                                                 std::vector<Argument> arguments);

// An operator and its parameters: "tensor, tensor?, int=1".
struct Operator {
  std::string name, parameters;
};
// All that Lower takes, by name.
std::vector<Operator> Operators();

}  // namespace vpod::aten
