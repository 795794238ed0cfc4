#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void MaxPool2dGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)};
  v1::Instruction op;
  *op.mutable_max_pool2d_gradient()->mutable_window() = forward.max_pool2d().window();
  const auto outputs = graph.AddOperation(std::move(op), {x, gradients.Get(forward.outputs(0))});
  if (!outputs.empty()) gradients.Add(x.id, outputs[0]);
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
