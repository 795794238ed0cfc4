// Stochastic rounding: which random bits an operation rounds its float16 results with.
#pragma once

#include <cstdint>
#include <map>

#include "client/compiler/compiler.h"
#include "client/compiler/graph_program.h"
#include "client/compiler/placement.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

// Adds what roundings follow from to the graph of a program that trains, whose gradients are there:
// for each IPU that rounds, by IPU; nothing if the program rounds to nearest.
std::map<uint32_t, RoundingState> AddRoundingStates(graph::Graph& graph, const ProgramSpec& spec,
                                                    const CompileOptions& options);

class RandomRounding {
 public:
  // The program and its placement outlive the object.
  RandomRounding(const GraphProgram& program, Placement& placement)
      : states_(program.rounding), placement_(placement) {}

  // Sets the rounding of a placed instruction, if it rounds, and `number` tells it apart from
  // others. Updates of weights are rounded alike on all replicas.
  void Apply(uint32_t number, uint32_t ipu, Section section, program::v1::Instruction& instruction);

 private:
  uint32_t CounterOfUpdate(uint32_t ipu, const RoundingState& state);

  const std::map<uint32_t, RoundingState>& states_;  // by IPU
  Placement& placement_;
  std::map<uint32_t, uint32_t> update_counters_;  // by IPU, tensors
};

}  // namespace vpod::compiler
