#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void GatherGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor input{forward.inputs(0)}, indices{forward.inputs(1)};
  const Tensor zeros = graph.Constant(graph.TypeOf(input), 0);
  const v1::Gather& op = forward.gather();
  gradients.Add(input.id,
                graph.Scatter(v1::Scatter::ADD, zeros, indices, gradients.Get(forward.outputs(0)),
                              op.axis(), op.along(), op.labels()));
}

// A set element hides the destination, whose gradient is zero there; an added one passes the
// gradient to both.
void ScatterGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor destination{forward.inputs(0)}, indices{forward.inputs(1)},
      update{forward.inputs(2)};
  const Tensor dy = gradients.Get(forward.outputs(0));
  if (!program::IsFloat(graph.TypeOf(dy).type)) return;
  const v1::Scatter& op = forward.scatter();
  gradients.Add(update.id, graph.Gather(dy, indices, op.axis(), op.along(), op.labels()));
  if (op.combine() == v1::Scatter::ADD) {
    gradients.Add(destination.id, dy);
  } else if (op.combine() == v1::Scatter::SET) {
    const Tensor zeros = graph.Constant(graph.TypeOf(update), 0);
    gradients.Add(destination.id, graph.Scatter(v1::Scatter::SET, dy, indices, zeros, op.axis(),
                                                op.along(), op.labels()));
  } else {
    graph.Fail(absl::UnimplementedError(
        "a scatter has a gradient if it sets or adds; this one multiplies or takes the smallest or "
        "largest"));
  }
}

}  // namespace

std::vector<GradientDef> GatherGradients() {
  return {{v1::Instruction::kGather, GatherGradient},
          {v1::Instruction::kScatter, ScatterGradient},
          {v1::Instruction::kIota, nullptr, "it has no input"}};
}

}  // namespace vpod::graph
