// Fuses nodes: batch norm takes over the addition and the ReLU beside it, chains of
// element-by-element ops become maps. Results stay the same to the bit.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "client/graph/graph.h"

namespace vpod::compiler {

// `nodes` are in an order of execution, and so is the result. Values in `results` are read by
// others than the nodes. Values from `first_backward` on belong to the gradients: forward nodes are
// not fused with those, because that would keep what they read until then.
std::vector<graph::Node> Fuse(const graph::Graph& graph, std::vector<graph::Node> nodes,
                              const std::set<uint32_t>& results, uint32_t first_backward);

}  // namespace vpod::compiler
