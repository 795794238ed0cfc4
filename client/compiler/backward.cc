#include "client/compiler/backward.h"

namespace vpod::compiler {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

LossGradients AddLossGradients(Graph& graph, const ProgramSpec& spec) {
  LossGradients gradients;
  if (!spec.loss.has_value()) return gradients;
  if (spec.loss_scale) {
    graph.SetIpu(graph.values()[spec.loss->id].ipu);
    gradients.loss_scale = graph.Buffer(kLossScaleName, {FLOAT32, {}}, {*spec.loss_scale});
  }
  gradients.of_variables =
      graph.GradientsOfUses(*spec.loss, graph.variables(), gradients.loss_scale);
  // Accumulated, each use of a variable enters the wide accumulator by itself.
  if (spec.accumulation > 1 || !graph.status().ok()) return gradients;
  for (size_t v = 0; v < gradients.of_variables.size(); ++v) {
    std::vector<Tensor>& uses = gradients.of_variables[v];
    if (!uses.empty()) uses = {graph.SumOfUses(graph.variables()[v], uses)};
  }
  return gradients;
}

}  // namespace vpod::compiler
