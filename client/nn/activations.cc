#include "client/nn/activations.h"

#include <cmath>
#include <numbers>

namespace vpod::nn {

using graph::Graph;
using graph::Tensor;

Tensor TanhGelu(Graph& graph, Tensor x) {
  if (!graph.status().ok()) return {};
  const auto times = [&](Tensor tensor, double factor) {
    return graph.Multiply(tensor, graph.Constant({graph.TypeOf(x).type, {}}, factor));
  };
  const Tensor cube = graph.Multiply(graph.Unary(program::v1::SQUARE, x), x);
  const Tensor inner =
      times(graph.Add(x, times(cube, 0.044715)), std::sqrt(2 * std::numbers::inv_pi));
  const Tensor half = times(x, 0.5);
  return graph.Add(half, graph.Multiply(half, graph.Unary(program::v1::TANH, inner)));
}

}  // namespace vpod::nn
