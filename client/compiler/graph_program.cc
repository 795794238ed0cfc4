#include "client/compiler/graph_program.h"

namespace vpod::compiler {

using graph::Tensor;

std::set<uint32_t> ResultsOf(const GraphProgram& program) {
  const graph::Graph& graph = program.graph;
  std::set<uint32_t> results;
  const auto add = [&](Tensor value) { results.insert(graph.RootOf(value.id)); };
  for (const std::vector<Tensor>& of_variable : program.gradients.of_variables) {
    for (Tensor gradient : of_variable) add(gradient);
  }
  for (Tensor gradient : program.gradients.counted) add(gradient);
  for (const auto& [ipu, state] : program.rounding) add(state.number);
  for (const graph::GraphOutput& output : graph.outputs()) add(output.value);
  for (const graph::Assignment& assignment : graph.assignments()) add(assignment.value);
  return results;
}

}  // namespace vpod::compiler
