#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void ReduceGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Reduce& op = forward.reduce();
  const Tensor x{forward.inputs(0)}, y{forward.outputs(0)};
  const TensorType x_type = graph.TypeOf(x);
  // The reduced axes come back with length 1, so that multiplication broadcasts over them.
  Dims kept = x_type.dims;
  double count = 1;  // of the elements of a result
  for (uint32_t axis : op.axes()) {
    count *= static_cast<double>(kept[axis]);
    kept[axis] = 1;
  }
  const Tensor dy = graph.Reshape(gradients.Get(y.id), kept);
  switch (op.operator_()) {
    case v1::SUM:
      gradients.Add(x.id, graph.Multiply(graph.Constant(x_type, 1), dy));
      break;
    case v1::MEAN:
      gradients.Add(x.id, graph.Multiply(graph.Constant(x_type, 1 / count), dy));
      break;
    default: {
      // Largest or smallest: equals share the gradient.
      const Tensor best = graph.Reshape(y, kept);
      const Tensor mask = graph.Cast(graph.Binary(v1::EQUAL, x, best), x_type.type);
      const std::vector<uint32_t> axes(op.axes().begin(), op.axes().end());
      const Tensor equals = graph.Reshape(graph.Reduce(v1::SUM, mask, axes), kept);
      gradients.Add(x.id, graph.Multiply(mask, graph.Binary(v1::DIVIDE, dy, equals)));
    }
  }
}

}  // namespace

std::vector<GradientDef> ReduceGradients() {
  return {
      {v1::Instruction::kReduce, ReduceGradient},
      {v1::Instruction::kArgMax, nullptr, "the output is an index"},
  };
}

}  // namespace vpod::graph
