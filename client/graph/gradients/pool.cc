#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void MaxPool2dGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::MaxPool2d& op = forward.max_pool2d();
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

}  // namespace

std::vector<GradientDef> PoolGradients() {
  return {
      {v1::Instruction::kMaxPool2D, MaxPool2dGradient},
      {v1::Instruction::kMaxPool2DGradient,
       [](Graph& graph, const v1::Instruction&, GradientMap&) {
         graph.Fail(absl::UnimplementedError("the gradient of max-pool has no derivative here"));
       }},
  };
}

}  // namespace vpod::graph
