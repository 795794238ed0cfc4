#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void MaxPoolGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, indices{forward.outputs(1)};
  const Dims& dims = graph.TypeOf(x).dims;
  v1::Instruction op;
  if (forward.max_pool().has_window())
    *op.mutable_max_pool_gradient()->mutable_window() = forward.max_pool().window();
  op.mutable_max_pool_gradient()->mutable_image_size()->Add(dims.begin() + 2, dims.end());
  const auto outputs =
      graph.AddOperation(std::move(op), {gradients.Get(forward.outputs(0)), indices});
  if (!outputs.empty()) gradients.Add(x.id, outputs[0]);
}

void AveragePoolGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)};
  const Dims& dims = graph.TypeOf(x).dims;
  v1::Instruction op;
  v1::AveragePoolGradient& gradient = *op.mutable_average_pool_gradient();
  if (forward.average_pool().has_window())
    *gradient.mutable_window() = forward.average_pool().window();
  gradient.set_count_padding(forward.average_pool().count_padding());
  gradient.mutable_image_size()->Add(dims.begin() + 2, dims.end());
  const auto outputs = graph.AddOperation(std::move(op), {gradients.Get(forward.outputs(0))});
  if (!outputs.empty()) gradients.Add(x.id, outputs[0]);
}

// It is linear, and the pooling is its transpose.
void AveragePoolSecondGradient(Graph& graph, const v1::Instruction& forward,
                               GradientMap& gradients) {
  const v1::AveragePoolGradient& op = forward.average_pool_gradient();
  const Tensor dy = gradients.Get(forward.outputs(0));
  const Dims& dims = graph.TypeOf({forward.inputs(0)}).dims;
  gradients.Add(forward.inputs(0),
                op.has_window()
                    ? graph.AveragePool(dy, op.window(), op.count_padding())
                    : graph.AdaptiveAveragePool(dy, Dims(dims.begin() + 2, dims.end())));
}

}  // namespace

std::vector<GradientDef> PoolingGradients() {
  return {
      {v1::Instruction::kMaxPool, MaxPoolGradient},
      {.kind = v1::Instruction::kMaxPoolGradient,
       .missing = "the gradient of max-pool has no derivative here"},
      {v1::Instruction::kAveragePool, AveragePoolGradient},
      {v1::Instruction::kAveragePoolGradient, AveragePoolSecondGradient},
  };
}

}  // namespace vpod::graph
