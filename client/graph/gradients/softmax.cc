#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void SoftmaxGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor y{forward.outputs(0)};
  v1::Instruction op;
  op.mutable_softmax_gradient()->set_logarithm(forward.softmax().logarithm());
  const auto dx = graph.AddOperation(std::move(op), {y, gradients.Get(y.id)});
  if (!dx.empty()) gradients.Add(forward.inputs(0), dx[0]);
}

// With t = sum of y·dy over a row, dx = y·(dy - t): of v, the gradient of dx,
// d(dy) = y·(v - sum of y·v), which is the same operation, and
// dy of y = v·(dy - t) - dy·sum of y·v. For the logarithm, dx = dy - exp(y)·sum of dy.
void SecondGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor y{forward.inputs(0)}, dy{forward.inputs(1)};
  const v1::DataType type = graph.TypeOf(y).type;
  const auto wide = [&](Tensor x) { return graph.Cast(x, v1::FLOAT32); };
  const Tensor v = wide(gradients.Get(forward.outputs(0))), y32 = wide(y), dy32 = wide(dy);
  const TensorType& rows = graph.TypeOf(y);
  const auto sum = [&](Tensor x) {
    Dims dims = rows.dims;
    dims.back() = 1;
    return graph.Reshape(graph.Reduce(v1::SUM, x, {static_cast<uint32_t>(rows.rank() - 1)}), dims);
  };
  const auto minus = [&](Tensor a, Tensor b) { return graph.Binary(v1::SUBTRACT, a, b); };
  if (forward.softmax_gradient().logarithm()) {
    const Tensor p = graph.Unary(v1::EXPONENT, y32), pv = graph.Multiply(p, v);
    gradients.Add(dy.id, graph.Cast(minus(v, sum(pv)), type));
    gradients.Add(y.id, graph.Cast(graph.Unary(v1::NEGATE, graph.Multiply(pv, sum(dy32))), type));
    return;
  }
  const Tensor yv = sum(graph.Multiply(y32, v)), t = sum(graph.Multiply(y32, dy32));
  gradients.Add(dy.id, graph.Cast(graph.Multiply(y32, minus(v, yv)), type));
  gradients.Add(
      y.id, graph.Cast(minus(graph.Multiply(v, minus(dy32, t)), graph.Multiply(dy32, yv)), type));
}

}  // namespace

std::vector<GradientDef> SoftmaxGradients() {
  return {{v1::Instruction::kSoftmax, SoftmaxGradient},
          {v1::Instruction::kSoftmaxGradient, SecondGradient}};
}

}  // namespace vpod::graph
