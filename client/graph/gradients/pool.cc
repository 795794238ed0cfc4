#include "client/graph/gradients/gradients.h"

namespace vpod::graph {

void MaxPool2dGradient(Graph& graph, const v1::MaxPool2d& op, GradientMap& gradients) {
  const Tensor x{op.input()};
  const Tensor dx = graph.NewValue(graph.TypeOf(x));
  v1::Instruction instruction;
  auto* gradient = instruction.mutable_max_pool2d_gradient();
  gradient->set_input(x.id);
  gradient->set_output_gradient(gradients.Get(op.output()).id);
  gradient->set_input_gradient(dx.id);
  *gradient->mutable_window() = op.window();
  graph.AddNode(std::move(instruction));
  gradients.Add(x.id, dx);
}

}  // namespace vpod::graph
