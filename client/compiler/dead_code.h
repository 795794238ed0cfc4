// Leaves out of a program what nobody needs: values that reach no output, gradient, buffer or
// remote buffer.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "client/graph/graph.h"

namespace vpod::compiler {

struct LiveCode {
  std::vector<graph::Node> nodes;  // in an order of execution
  std::set<uint32_t> inputs;       // of the graph, which nodes or results read
  std::set<uint32_t> results;      // values that others than the nodes read
};

// Finds what makes `results` and what the graph's outputs need; `assigns`: buffers are assigned
// their values, too. The nodes that make the values in `first`, from
// which others are made, come first.
LiveCode FindLiveCode(const graph::Graph& graph, bool assigns, const std::vector<uint32_t>& first,
                      std::vector<uint32_t> results);

}  // namespace vpod::compiler
