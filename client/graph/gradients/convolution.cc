#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// Each pass is linear in both arguments, and the gradients of each are the other two passes: with
// x, w and y for image, weights and result, the sum of products x·w·y over the windows has the
// three passes as its partial derivatives.
void ConvolutionGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Convolution& op = forward.convolution();
  const Tensor a{forward.inputs(0)}, b{forward.inputs(1)};
  const Tensor dy = gradients.Get(forward.outputs(0));
  const auto add = [&](v1::Convolution::Pass pass, Tensor first, Tensor second, Tensor to) {
    v1::Instruction instruction;
    v1::Convolution& gradient = *instruction.mutable_convolution();
    gradient.set_pass(pass);
    *gradient.mutable_window() = op.window();
    gradient.set_groups(op.groups());
    if (op.has_plan()) *gradient.mutable_plan() = op.plan();
    if (pass == v1::Convolution::INPUT_GRADIENT) {
      const Dims& dims = graph.TypeOf(to).dims;
      gradient.mutable_image_size()->Add(dims.begin() + 2, dims.end());
    }
    const auto outputs = graph.AddOperation(std::move(instruction), {first, second});
    if (!outputs.empty()) gradients.Add(to.id, outputs[0]);
  };
  switch (op.pass()) {
    case v1::Convolution::INPUT_GRADIENT:  // (y, w) -> x
      add(v1::Convolution::FORWARD, dy, b, a);
      add(v1::Convolution::WEIGHT_GRADIENT, dy, a, b);
      break;
    case v1::Convolution::WEIGHT_GRADIENT:  // (x, y) -> w
      add(v1::Convolution::INPUT_GRADIENT, b, dy, a);
      add(v1::Convolution::FORWARD, a, dy, b);
      break;
    default:  // (x, w) -> y
      add(v1::Convolution::INPUT_GRADIENT, dy, b, a);
      add(v1::Convolution::WEIGHT_GRADIENT, a, dy, b);
  }
}

}  // namespace

std::vector<GradientDef> ConvolutionGradients() {
  return {{v1::Instruction::kConvolution, ConvolutionGradient}};
}

}  // namespace vpod::graph
