#include "client/graph/gradients/gradients.h"

namespace vpod::graph {

void Conv2dGradient(Graph& graph, const v1::Conv2d& op, GradientMap& gradients) {
  const Tensor image{op.a()}, weights{op.b()}, dy = gradients.Get(op.output());
  const auto add = [&](v1::Conv2d::Pass pass, Tensor a, Tensor b, Tensor to) {
    const Tensor gradient = graph.NewValue(graph.TypeOf(to));
    v1::Instruction instruction;
    v1::Conv2d* conv = instruction.mutable_conv2d();
    conv->set_pass(pass);
    conv->set_a(a.id);
    conv->set_b(b.id);
    conv->set_output(gradient.id);
    *conv->mutable_window() = op.window();
    graph.AddNode(std::move(instruction));
    gradients.Add(to.id, gradient);
  };
  add(v1::Conv2d::INPUT_GRADIENT, dy, weights, image);
  add(v1::Conv2d::WEIGHT_GRADIENT, image, dy, weights);
}

}  // namespace vpod::graph
