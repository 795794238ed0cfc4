// Stochastic rounding: which random bits an operation rounds its float16 results with.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/compiler/placement.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

class RandomRounding {
 public:
  // Adds the random state of each IPU that rounds to the graph, whose gradients are there; nothing
  // if the program rounds to nearest.
  RandomRounding(graph::Graph& graph, const ProgramSpec& spec, const CompileOptions& options);

  bool enabled() const { return !states_.empty(); }
  // The values that the roundings read, which have to be made before all that is rounded.
  std::vector<uint32_t> Values() const;
  // Sets the rounding of a placed instruction, if it rounds, and `number` tells it apart from
  // others. Updates of weights are rounded alike on all replicas.
  void Apply(uint32_t number, uint32_t ipu, Section section, Placement& placement,
             program::v1::Instruction& instruction);

 private:
  uint32_t CounterOfUpdate(uint32_t ipu, Placement& placement);

  graph::Tensor replicas_;  // a constant
  const bool equal_seeds_;
  std::map<uint32_t, graph::Graph::RandomState> states_;  // by IPU
  std::map<uint32_t, uint32_t> update_counters_;          // by IPU, tensors
};

}  // namespace vpod::compiler
