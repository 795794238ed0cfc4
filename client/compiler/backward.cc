#include "client/compiler/backward.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

// In float32, as the update wants the gradient.
Tensor Sum(Graph& graph, const std::vector<Tensor>& gradients) {
  Tensor sum;
  for (Tensor gradient : gradients) {
    if (graph.TypeOf(gradient).type != FLOAT32) gradient = graph.Cast(gradient, FLOAT32);
    sum = sum.valid() ? graph.Add(sum, gradient) : gradient;
  }
  return sum;
}

}  // namespace

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
    if (uses.size() < 2) continue;
    graph.SetIpu(graph.values()[graph.variables()[v].id].ipu);
    uses = {Sum(graph, uses)};
  }
  return gradients;
}

}  // namespace vpod::compiler
