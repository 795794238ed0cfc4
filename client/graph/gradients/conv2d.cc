#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// Each pass is linear in both arguments, and the gradients of each are the other two passes: with
// x, w and y for image, weights and result, the sum of products x·w·y over the windows has the
// three passes as its partial derivatives.
void Conv2dGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Conv2d& op = forward.conv2d();
  const Tensor a{forward.inputs(0)}, b{forward.inputs(1)};
  const Tensor dy = gradients.Get(forward.outputs(0));
  const auto add = [&](v1::Conv2d::Pass pass, Tensor first, Tensor second, Tensor to) {
    v1::Instruction instruction;
    instruction.mutable_conv2d()->set_pass(pass);
    *instruction.mutable_conv2d()->mutable_window() = op.window();
    gradients.Add(to.id,
                  graph.AddOperation(std::move(instruction), {first, second}, graph.TypeOf(to)));
  };
  switch (op.pass()) {
    case v1::Conv2d::INPUT_GRADIENT:  // (y, w) -> x
      add(v1::Conv2d::FORWARD, dy, b, a);
      add(v1::Conv2d::WEIGHT_GRADIENT, dy, a, b);
      break;
    case v1::Conv2d::WEIGHT_GRADIENT:  // (x, y) -> w
      add(v1::Conv2d::INPUT_GRADIENT, b, dy, a);
      add(v1::Conv2d::FORWARD, a, dy, b);
      break;
    default:  // (x, w) -> y
      add(v1::Conv2d::INPUT_GRADIENT, dy, b, a);
      add(v1::Conv2d::WEIGHT_GRADIENT, a, dy, b);
  }
}

}  // namespace

std::vector<GradientDef> Conv2dGradients() { return {{v1::Instruction::kConv2D, Conv2dGradient}}; }

}  // namespace vpod::graph
