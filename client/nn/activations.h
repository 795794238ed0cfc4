// Activations of which a graph has no shorthand.
#pragma once

#include "client/graph/graph.h"

namespace vpod::nn {

// GELU in the form x / 2 × (1 + tanh(sqrt(2 / pi) × (x + 0.044715 x³))).
graph::Tensor TanhGelu(graph::Graph& graph, graph::Tensor x);

}  // namespace vpod::nn
