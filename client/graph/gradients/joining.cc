#include "client/graph/gradients/joining.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace vpod::graph {
namespace {

// The axes along which a part is shorter than the whole.
std::vector<size_t> CutAxes(const Dims& part, const Dims& whole) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (part[i] != whole[i]) axes.push_back(i);
  }
  return axes;
}

Tensor PadTo(Graph& graph, const Dims& whole, Tensor part, const Dims& begin) {
  const Dims dims = graph.TypeOf(part).dims;
  if (dims == whole) return part;
  Dims after;
  for (size_t i = 0; i < whole.size(); ++i) after.push_back(whole[i] - begin[i] - dims[i]);
  return graph.Pad(part, begin, after);
}

// Takes out parts that follow one another, the first of them first; they are in order.
std::vector<PartGradient> TakeRun(const Graph& graph, size_t axis,
                                  std::vector<PartGradient>& parts) {
  std::vector<PartGradient> run, rest;
  int64_t end = parts.front().begin[axis];
  for (PartGradient& part : parts) {
    if (part.begin[axis] != end) {
      rest.push_back(std::move(part));
      continue;
    }
    end += graph.TypeOf(part.gradient).dims[axis];
    run.push_back(std::move(part));
  }
  parts = std::move(rest);
  return run;
}

Tensor Concatenated(Graph& graph, const std::vector<Tensor>& tensors, uint32_t axis) {
  return tensors.size() == 1 ? tensors.front() : graph.Concat(tensors, axis);
}

// A product of two matrices, of a node.
struct Product {
  Tensor result, a, b;
  v1::MatMul op;
  uint32_t ipu;
  // The axes that are summed over.
  uint32_t axis_a() const { return op.transpose_a() ? 0 : 1; }
  uint32_t axis_b() const { return op.transpose_b() ? 1 : 0; }
};

// Whether it pays to join it with others: to copy both operands costs less than to add the result.
bool IsJoinable(const Graph& graph, const Product& product) {
  const Dims &a = graph.TypeOf(product.a).dims, &b = graph.TypeOf(product.b).dims;
  if (a.size() != 2 || b.size() != 2) return false;
  const int64_t sum = a[product.axis_a()], rows = a[1 - product.axis_a()],
                columns = b[1 - product.axis_b()];
  return sum * (rows + columns) <= rows * columns;
}

Tensor ProductOfAll(Graph& graph, const std::vector<Product>& products) {
  const Product& first = products.front();
  if (products.size() == 1) return first.result;
  std::vector<Tensor> a, b;
  for (const Product& product : products) {
    a.push_back(product.a);
    b.push_back(product.b);
  }
  graph.SetIpu(first.ipu);
  // In float32: float16 would round, and might overflow, what an accumulator would add up.
  const Tensor all_a = graph.Cast(graph.Concat(a, first.axis_a()), v1::FLOAT32),
               all_b = graph.Cast(graph.Concat(b, first.axis_b()), v1::FLOAT32);
  return graph.MatMul(all_a, all_b, first.op.transpose_a(), first.op.transpose_b());
}

}  // namespace

std::vector<Tensor> JoinParts(Graph& graph, const Dims& dims, std::vector<PartGradient> parts) {
  std::vector<Tensor> gradients;
  std::map<size_t, std::vector<PartGradient>> by_axis;
  for (PartGradient& part : parts) {
    const std::vector<size_t> axes = CutAxes(graph.TypeOf(part.gradient).dims, dims);
    if (axes.size() == 1) {
      by_axis[axes[0]].push_back(std::move(part));
    } else {
      gradients.push_back(PadTo(graph, dims, part.gradient, part.begin));
    }
  }
  for (auto& [axis, along] : by_axis) {
    std::stable_sort(along.begin(), along.end(), [axis](const auto& a, const auto& b) {
      return a.begin[axis] < b.begin[axis];
    });
    while (!along.empty()) {
      const std::vector<PartGradient> run = TakeRun(graph, axis, along);
      std::vector<Tensor> pieces;
      for (const PartGradient& part : run) pieces.push_back(part.gradient);
      const Tensor joined = Concatenated(graph, pieces, static_cast<uint32_t>(axis));
      gradients.push_back(PadTo(graph, dims, joined, run.front().begin));
    }
  }
  return gradients;
}

std::vector<Tensor> JoinProducts(Graph& graph, const std::vector<Tensor>& gradients) {
  if (gradients.size() < 2) return gradients;
  std::map<uint32_t, const Node*> producers;
  for (const Node& node : graph.nodes()) {
    if (node.instruction.has_mat_mul()) producers[node.instruction.outputs(0)] = &node;
  }
  using Kind = std::tuple<uint32_t, bool, bool, v1::DataType>;
  std::map<Kind, std::vector<Product>> of_kind;
  std::vector<Tensor> result;
  // Gradients are found from the last use to the first.
  for (auto it = gradients.rbegin(); it != gradients.rend(); ++it) {
    const auto producer = producers.find(it->id);
    if (producer == producers.end()) {
      result.push_back(*it);
      continue;
    }
    const auto& [instruction, ipu, origin] = *producer->second;
    Product product{
        *it, {instruction.inputs(0)}, {instruction.inputs(1)}, instruction.mat_mul(), ipu};
    if (!IsJoinable(graph, product)) {
      result.push_back(*it);
      continue;
    }
    const v1::MatMul& op = product.op;
    of_kind[{ipu, op.transpose_a(), op.transpose_b(), graph.TypeOf(product.a).type}].push_back(
        std::move(product));
  }
  for (const auto& [kind, products] : of_kind) result.push_back(ProductOfAll(graph, products));
  return result;
}

}  // namespace vpod::graph
