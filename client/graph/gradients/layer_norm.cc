#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// The gradient that reaches x through the moments, if the loss uses them:
// dmean / n - dinverse * inverse^3 * (x - mean) / n, where each row of x has n elements.
void AddOfMoments(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, mean{forward.outputs(1)}, inverse{forward.outputs(2)};
  const Tensor dmean = gradients.Get(mean.id), dinverse = gradients.Get(inverse.id);
  const TensorType type = graph.TypeOf(x);
  Dims moments = type.dims;
  moments.back() = 1;
  const auto spread = [&](Tensor moment) { return graph.Reshape(moment, moments); };
  const auto scaled = [&](Tensor moment, double factor) {
    return graph.Multiply(moment, graph.Constant({v1::FLOAT32, {}}, factor));
  };
  const double share = 1 / static_cast<double>(type.dims.back());
  if (dmean.valid()) {
    const Tensor dx = graph.Expand(spread(scaled(dmean, share)), type.dims);
    gradients.Add(x.id, graph.Cast(dx, type.type));
  }
  if (dinverse.valid()) {
    const Tensor cube = graph.Multiply(inverse, graph.Unary(v1::SQUARE, inverse));
    const Tensor factor = spread(scaled(graph.Multiply(dinverse, cube), -share));
    const Tensor centred = graph.Binary(v1::SUBTRACT, graph.Cast(x, v1::FLOAT32), spread(mean));
    gradients.Add(x.id, graph.Cast(graph.Multiply(centred, factor), type.type));
  }
}

// The sums of the gradients of scale and offset are over all rows, in float32.
void LayerNormGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, mean{forward.outputs(1)}, deviation{forward.outputs(2)};
  AddOfMoments(graph, forward, gradients);
  const Tensor dy = gradients.Get(forward.outputs(0));
  if (!dy.valid()) return;
  const bool affine = forward.inputs_size() == 3;
  std::vector<Tensor> inputs = {x, dy, mean, deviation};
  if (affine) inputs.push_back({forward.inputs(1)});
  v1::Instruction op;
  op.mutable_layer_norm_gradient();
  const auto dx = graph.AddOperation(std::move(op), std::move(inputs));
  if (dx.empty()) return;
  gradients.Add(x.id, dx[0]);
  if (!affine) return;
  const TensorType type = graph.TypeOf(x);
  Dims moments = type.dims;
  moments.back() = 1;
  const Tensor dy32 = graph.Cast(dy, v1::FLOAT32);
  const Tensor centred =
      graph.Binary(v1::SUBTRACT, graph.Cast(x, v1::FLOAT32), graph.Reshape(mean, moments));
  const Tensor normalized = graph.Multiply(centred, graph.Reshape(deviation, moments));
  std::vector<uint32_t> rows;
  for (uint32_t axis = 0; axis + 1 < type.dims.size(); ++axis) rows.push_back(axis);
  const auto sum = [&](Tensor products) {
    return graph.Cast(graph.Reduce(v1::SUM, products, rows), type.type);
  };
  gradients.Add(forward.inputs(1), sum(graph.Multiply(dy32, normalized)));
  gradients.Add(forward.inputs(2), sum(dy32));
}

}  // namespace

std::vector<GradientDef> LayerNormGradients() {
  return {{v1::Instruction::kLayerNorm, LayerNormGradient},
          {.kind = v1::Instruction::kLayerNormGradient,
           .missing = "the gradient of layer norm has no derivative here"}};
}

}  // namespace vpod::graph
