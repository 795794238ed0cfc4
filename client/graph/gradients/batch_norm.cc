#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// The gradient that reaches x through the moments, if the loss uses them:
// dmean / n + dvariance * 2 * (x - mean) / n, where each channel of x has n elements.
void AddOfMoments(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, mean{forward.outputs(1)};
  const Tensor dmean = gradients.Get(mean.id), dvariance = gradients.Get(forward.outputs(2));
  const TensorType type = graph.TypeOf(x);
  if (type.elements() == 0) return;
  Dims along_channels(type.dims.size(), 1);
  along_channels[1] = type.dims[1];
  const double share = static_cast<double>(type.dims[1]) / static_cast<double>(type.elements());
  const auto spread = [&](Tensor vector, double factor) {
    return graph.Multiply(graph.Reshape(vector, along_channels),
                          graph.Constant({v1::FLOAT32, {}}, factor));
  };
  if (dmean.valid()) {
    gradients.Add(x.id, graph.Cast(graph.Expand(spread(dmean, share), type.dims), type.type));
  }
  if (dvariance.valid()) {
    const Tensor centred = graph.Binary(v1::SUBTRACT, graph.Cast(x, v1::FLOAT32), spread(mean, 1));
    gradients.Add(x.id,
                  graph.Cast(graph.Multiply(centred, spread(dvariance, 2 * share)), type.type));
  }
}

void BatchNormGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, scale{forward.inputs(1)}, offset{forward.inputs(2)};
  const Tensor mean{forward.outputs(1)}, variance{forward.outputs(2)};
  AddOfMoments(graph, forward, gradients);
  const Tensor dy = gradients.Get(forward.outputs(0));
  if (!dy.valid()) return;
  v1::Instruction op;
  op.mutable_batch_norm_gradient()->set_epsilon(forward.batch_norm().epsilon());
  const auto outputs = graph.AddOperation(std::move(op), {x, dy, scale, mean, variance});
  if (outputs.empty()) return;
  gradients.Add(x.id, outputs[0]);
  gradients.Add(scale.id, outputs[1]);
  gradients.Add(offset.id, outputs[2]);
}

// y = (x - mean) * factor + offset with factor = scale / sqrt(variance + epsilon). In float32:
// float16 would round each product before it is summed.
void BatchNormInferenceGradient(Graph& graph, const v1::Instruction& forward,
                                GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, scale{forward.inputs(1)}, offset{forward.inputs(2)},
      mean{forward.inputs(3)}, variance{forward.inputs(4)};
  const Tensor dy = graph.Cast(gradients.Get(forward.outputs(0)), v1::FLOAT32);
  const TensorType type = graph.TypeOf(x);
  Dims along_channels(type.dims.size(), 1);
  along_channels[1] = type.dims[1];
  std::vector<uint32_t> others;
  for (uint32_t i = 0; i < type.dims.size(); ++i) {
    if (i != 1) others.push_back(i);
  }
  const auto spread = [&](Tensor vector) { return graph.Reshape(vector, along_channels); };
  const auto sum = [&](Tensor values) { return graph.Reduce(v1::SUM, values, others); };
  const Tensor epsilon =
      graph.Constant({v1::FLOAT32, {}}, forward.batch_norm_inference().epsilon());
  const Tensor inverse =
      graph.Unary(v1::RECIPROCAL, graph.Unary(v1::SQUARE_ROOT, graph.Add(variance, epsilon)));
  const Tensor factor = graph.Multiply(scale, inverse);
  const Tensor dmean_per_offset = graph.Unary(v1::NEGATE, factor);
  const Tensor doffset = sum(dy);
  const Tensor centred = graph.Binary(v1::SUBTRACT, graph.Cast(x, v1::FLOAT32), spread(mean));
  // The gradient of the factor; scale and variance act through it.
  const Tensor dfactor = sum(graph.Multiply(dy, centred));
  gradients.Add(x.id, graph.Cast(graph.Multiply(dy, spread(factor)), type.type));
  gradients.Add(scale.id, graph.Multiply(dfactor, inverse));
  gradients.Add(offset.id, doffset);
  gradients.Add(mean.id, graph.Multiply(doffset, dmean_per_offset));
  // d factor / d variance = -factor / (2 * (variance + epsilon))
  const Tensor minus_half = graph.Constant({v1::FLOAT32, {}}, -0.5);
  const Tensor dvariance =
      graph.Multiply(graph.Multiply(minus_half, factor), graph.Unary(v1::SQUARE, inverse));
  gradients.Add(variance.id, graph.Multiply(dfactor, dvariance));
}

}  // namespace

std::vector<GradientDef> BatchNormGradients() {
  return {
      {v1::Instruction::kBatchNorm, BatchNormGradient},
      {v1::Instruction::kBatchNormInference, BatchNormInferenceGradient},
      {.kind = v1::Instruction::kBatchNormGradient,
       .missing = "the gradient of batch norm has no derivative here"},
  };
}

}  // namespace vpod::graph
