#include "absl/strings/str_cat.h"
#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// The gradient of a product is dy times the product of the other elements, computed in float32 and
// without division where an element is 0.
Tensor ProductGradient(Graph& graph, Tensor input, Tensor dy, const std::vector<uint32_t>& axes,
                       const Dims& kept) {
  const auto number = [&](v1::DataType type, double value) {
    return graph.Constant({type, {}}, value);
  };
  const Tensor zero = number(v1::FLOAT32, 0), one = number(v1::FLOAT32, 1);
  const Tensor x = graph.Cast(input, v1::FLOAT32);
  const Tensor is_zero = graph.Binary(v1::EQUAL, x, zero), nonzero = graph.Select(is_zero, one, x);
  const Tensor zeros =
      graph.Reshape(graph.Reduce(v1::SUM, graph.Cast(is_zero, v1::INT32), axes), kept);
  const Tensor product = graph.Multiply(
      graph.Cast(dy, v1::FLOAT32), graph.Reshape(graph.Reduce(v1::PRODUCT, nonzero, axes), kept));
  const auto if_zeros = [&](double count, Tensor gradient) {
    return graph.Select(graph.Binary(v1::EQUAL, zeros, number(v1::INT32, count)), gradient, zero);
  };
  const Tensor gradient = graph.Select(is_zero, if_zeros(1, product),
                                       if_zeros(0, graph.Binary(v1::DIVIDE, product, nonzero)));
  return graph.Cast(gradient, graph.TypeOf(input).type);
}

void ReduceGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Reduce& op = forward.reduce();
  const Tensor x{forward.inputs(0)}, y{forward.outputs(0)};
  const TensorType x_type = graph.TypeOf(x);
  // The reduced axes come back with length 1.
  Dims kept = x_type.dims;
  double count = 1;  // of the elements of a result
  for (uint32_t axis : op.axes()) {
    count *= static_cast<double>(kept[axis]);
    kept[axis] = 1;
  }
  const Tensor dy = graph.Reshape(gradients.Get(y.id), kept);
  switch (op.operator_()) {
    case v1::SUM:
      gradients.AddRepeated(x.id, dy);
      break;
    case v1::MEAN: {
      // Rounded once: a factor of float16 would be wrong in its last place, or 0.
      const Tensor share =
          graph.Multiply(graph.Cast(dy, v1::FLOAT32), graph.Constant({v1::FLOAT32, {}}, 1 / count));
      gradients.AddRepeated(x.id, graph.Cast(share, x_type.type));
      break;
    }
    case v1::PRODUCT:
      gradients.Add(x.id,
                    ProductGradient(graph, x, dy, {op.axes().begin(), op.axes().end()}, kept));
      break;
    case v1::MAX:
    case v1::MIN: {
      // Equals share the gradient. Their number may be beyond float16.
      const Tensor best = graph.Reshape(y, kept);
      const Tensor mask = graph.Cast(graph.Binary(v1::EQUAL, x, best), v1::FLOAT32);
      const std::vector<uint32_t> axes(op.axes().begin(), op.axes().end());
      const Tensor equals = graph.Reshape(graph.Reduce(v1::SUM, mask, axes), kept);
      const Tensor share = graph.Binary(v1::DIVIDE, graph.Cast(dy, v1::FLOAT32), equals);
      gradients.Add(x.id, graph.Cast(graph.Multiply(mask, share), x_type.type));
      break;
    }
    default:
      graph.Fail(absl::InvalidArgumentError(
          absl::StrCat("a reduction by ", v1::ReduceOperator_Name(op.operator_()),
                       " has no gradient; SUM, MEAN, MAX, MIN and PRODUCT have one")));
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
