#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// The sum of dy times the other factors, over the results that an element is in, in float32. A
// result before the first zero is divided by the element; that zero is left out; behind it all sums
// are 0.
Tensor CumulativeProductGradient(Graph& graph, const v1::Cumulate& op, Tensor input, Tensor dy) {
  const auto number = [&](v1::DataType type, double value) {
    return graph.Constant({type, {}}, value);
  };
  const Tensor zero = number(v1::FLOAT32, 0), one = number(v1::FLOAT32, 1);
  const Tensor x = graph.Cast(input, v1::FLOAT32), slope = graph.Cast(dy, v1::FLOAT32);
  const Tensor is_zero = graph.Binary(v1::EQUAL, x, zero);
  const Tensor zeros =
      graph.Cumulate(v1::SUM, graph.Cast(is_zero, v1::INT32), op.axis(), {.reverse = op.reverse()});
  const auto zeros_are = [&](double count) {
    return graph.Binary(v1::EQUAL, zeros, number(v1::INT32, count));
  };
  const Tensor is_first = graph.Binary(v1::LOGICAL_AND, is_zero, zeros_are(1));
  const auto sum_of_products = [&](Tensor factors) {
    const Tensor products = graph.Cumulate(v1::PRODUCT, factors, op.axis(),
                                           {.exclusive = op.exclusive(), .reverse = op.reverse()});
    return graph.Cumulate(v1::SUM, graph.Multiply(slope, products), op.axis(),
                          {.exclusive = op.exclusive(), .reverse = !op.reverse()});
  };
  const Tensor before = graph.Binary(v1::DIVIDE, sum_of_products(x), graph.Select(is_zero, one, x));
  const Tensor at_first = sum_of_products(graph.Select(is_first, one, x));
  const Tensor gradient =
      graph.Select(zeros_are(0), before, graph.Select(is_first, at_first, zero));
  return graph.Cast(gradient, graph.TypeOf(input).type);
}

void CumulateGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Cumulate& op = forward.cumulate();
  if (op.operator_() == v1::PRODUCT) {
    const Tensor x{forward.inputs(0)}, dy = gradients.Get(forward.outputs(0));
    gradients.Add(x.id, CumulativeProductGradient(graph, op, x, dy));
    return;
  }
  // Each element is in the results at its place and behind.
  gradients.Add(forward.inputs(0),
                graph.Cumulate(v1::SUM, gradients.Get(forward.outputs(0)), op.axis(),
                               {.exclusive = op.exclusive(), .reverse = !op.reverse()}));
}

// Chosen elements get their gradients back; the places are all different.
void SortGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, values{forward.outputs(0)}, places{forward.outputs(1)};
  const Tensor dy = gradients.Get(values.id);
  if (!dy.valid()) return;  // the places alone have none
  gradients.Add(x.id, graph.Scatter(v1::Scatter::SET, graph.Constant(graph.TypeOf(x), 0), places,
                                    dy, forward.sort().axis(), /*along=*/true));
}

}  // namespace

std::vector<GradientDef> LineGradients() {
  return {{v1::Instruction::kCumulate, CumulateGradient}, {v1::Instruction::kSort, SortGradient}};
}

}  // namespace vpod::graph
