// A program as the passes from gradients to fusion take and give it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

struct LossGradients {
  // For each variable of the graph, in their order, the gradients whose sum is its gradient: none
  // if the loss does not depend on it, several only if they are accumulated.
  std::vector<std::vector<graph::Tensor>> of_variables;
  graph::Tensor loss_scale;  // a buffer, if there is one
  // With a histogram: the buffer of kLossScaleFactorName, and the gradients whose elements count.
  graph::Tensor loss_scale_factor;
  std::vector<graph::Tensor> counted;
};

// The values from which the stochastic roundings on an IPU follow.
struct RoundingState {
  graph::Tensor seed;  // UINT32 [2], a buffer
  // UINT32: the number of the micro-batch in the job, or what all replicas put in its place if they
  // round alike.
  graph::Tensor number;
  graph::Tensor counter;   // UINT32, a buffer: micro-batches that this replica has counted
  graph::Tensor replicas;  // UINT32, a constant
};

struct GraphProgram {
  ProgramSpec spec;
  uint32_t ipus = 1;            // of a replica
  uint32_t replicas = 1;        // of the job
  bool off_chip_state = false;  // CompileOptions::off_chip_optimizer_state
  bool off_chip_accumulators = false;
  uint32_t tensor_shards = 1;
  graph::Graph graph;             // with the gradients; its nodes are in an order of execution
  LossGradients gradients;        // of a program that trains
  uint32_t first_backward = ~0u;  // values from this one on belong to the gradients
  std::map<uint32_t, RoundingState> rounding;  // by IPU; none: all is rounded to nearest
  // Values that are computed once more (recompute.h), with those that they equal.
  std::map<uint32_t, uint32_t> recomputed;
  std::set<uint32_t> filters;  // variables that lie with the outputs innermost (placement.h)

  bool trains() const { return spec.loss.has_value(); }
};

// Values that others than the nodes read: gradients, outputs, what buffers are assigned and what
// roundings follow from. In the place of a reshape is the value whose bytes it shares.
std::set<uint32_t> ResultsOf(const GraphProgram& program);

}  // namespace vpod::compiler
