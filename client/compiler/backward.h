// The gradients of a program that trains, as the update takes them.
#pragma once

#include <vector>

#include "client/compiler/compiler.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

struct LossGradients {
  // For each variable of the graph, in their order, the gradients whose sum is its gradient: none
  // if the loss does not depend on it, several only if they are accumulated.
  std::vector<std::vector<graph::Tensor>> of_variables;
  graph::Tensor loss_scale;  // a buffer, if there is one
};

// Adds the gradients of the loss to the graph; nothing to a program without one.
LossGradients AddLossGradients(graph::Graph& graph, const ProgramSpec& spec);

}  // namespace vpod::compiler
