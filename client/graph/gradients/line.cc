#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void CumulateGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Cumulate& op = forward.cumulate();
  if (op.operator_() == v1::PRODUCT) {
    graph.Fail(absl::UnimplementedError("the gradient of a cumulative product is not available"));
    return;
  }
  // Each element is in the results at its place and behind.
  gradients.Add(forward.inputs(0),
                graph.Cumulate(v1::SUM, gradients.Get(forward.outputs(0)), op.axis(),
                               {.exclusive = op.exclusive(), .reverse = !op.reverse()}));
}

// Chosen elements get their gradients back; the places are all different.
void SortGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, values{forward.outputs(0)}, places{forward.outputs(1)};
  const Tensor dy = gradients.Get(values.id);
  if (!dy.valid()) return;  // the places alone have none
  gradients.Add(x.id, graph.Scatter(v1::Scatter::SET, graph.Constant(graph.TypeOf(x), 0), places,
                                    dy, forward.sort().axis(), /*along=*/true));
}

}  // namespace

std::vector<GradientDef> LineGradients() {
  return {{v1::Instruction::kCumulate, CumulateGradient}, {v1::Instruction::kSort, SortGradient}};
}

}  // namespace vpod::graph
