#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void CopyGradient(Graph&, const v1::Instruction& forward, GradientMap& gradients) {
  gradients.Add(forward.inputs(0), gradients.Get(forward.outputs(0)));
}

void TransposeGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const auto& permutation = forward.transpose().permutation();
  std::vector<uint32_t> inverse(static_cast<size_t>(permutation.size()));
  for (int i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = static_cast<uint32_t>(i);
  gradients.Add(forward.inputs(0), graph.Transpose(gradients.Get(forward.outputs(0)), inverse));
}

// Puts step - 1 zeros behind each index of an axis but the last. The other axes are joined
// meanwhile: a tensor of the largest rank has no dimension to spare.
Tensor Spread(Graph& graph, Tensor tensor, size_t axis, int64_t step) {
  Dims dims = graph.TypeOf(tensor).dims;
  const int64_t length = dims[axis];
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != axis) (i < axis ? outer : inner) *= dims[i];
  }
  tensor = graph.Reshape(tensor, {outer, length, 1, inner});
  tensor = graph.Pad(tensor, {0, 0, 0, 0}, {0, 0, step - 1, 0});
  tensor = graph.Reshape(tensor, {outer, length * step, inner});
  dims[axis] = (length - 1) * step + 1;
  return graph.Reshape(graph.Slice(tensor, {0, 0, 0}, {outer, dims[axis], inner}), dims);
}

void SliceGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::Slice& op = forward.slice();
  const Tensor x{forward.inputs(0)};
  const Dims dims = graph.TypeOf(x).dims;
  Tensor gradient = gradients.Get(forward.outputs(0));
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto axis = static_cast<int>(i);
    if (op.step(axis) > 1 && op.size(axis) > 1)
      gradient = Spread(graph, gradient, i, op.step(axis));
  }
  gradients.AddPart(x.id, {gradient, Dims(op.begin().begin(), op.begin().end())});
}

void ExpandGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)};
  gradients.Add(x.id, graph.ReduceToType(gradients.Get(forward.outputs(0)), graph.TypeOf(x)));
}

void PadGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)};
  const auto& before = forward.pad().before();
  gradients.Add(x.id, graph.Slice(gradients.Get(forward.outputs(0)),
                                  Dims(before.begin(), before.end()), graph.TypeOf(x).dims));
}

void ConcatGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor dy = gradients.Get(forward.outputs(0));
  const size_t axis = forward.concat().axis();
  Dims begin(graph.TypeOf(dy).dims.size(), 0);
  for (uint32_t input : forward.inputs()) {
    const Dims size = graph.TypeOf({input}).dims;
    gradients.Add(input, graph.Slice(dy, begin, size));
    begin[axis] += size[axis];
  }
}

std::vector<uint32_t> AxesOf(const google::protobuf::RepeatedField<uint32_t>& axes) {
  return {axes.begin(), axes.end()};
}

void DynamicSliceGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, start{forward.inputs(1)};
  const Tensor zeros = graph.Constant(graph.TypeOf(x), 0);
  gradients.Add(x.id, graph.DynamicUpdate(zeros, gradients.Get(forward.outputs(0)), start,
                                          AxesOf(forward.dynamic_slice().axes())));
}

void DynamicUpdateGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor destination{forward.inputs(0)}, update{forward.inputs(1)}, start{forward.inputs(2)};
  const Tensor dy = gradients.Get(forward.outputs(0));
  const std::vector<uint32_t> axes = AxesOf(forward.dynamic_update().axes());
  const TensorType type = graph.TypeOf(update);
  Dims size;
  for (uint32_t axis : axes) size.push_back(type.dims[axis]);
  gradients.Add(update.id, graph.DynamicSlice(dy, start, axes, size));
  gradients.Add(destination.id, graph.DynamicUpdate(dy, graph.Constant(type, 0), start, axes));
}

}  // namespace

std::vector<GradientDef> DataMovementGradients() {
  return {
      {v1::Instruction::kCopy, CopyGradient},
      {v1::Instruction::kTranspose, TransposeGradient},
      {v1::Instruction::kSlice, SliceGradient},
      {v1::Instruction::kExpand, ExpandGradient},
      {v1::Instruction::kPad, PadGradient},
      {v1::Instruction::kConcat, ConcatGradient},
      {v1::Instruction::kDynamicSlice, DynamicSliceGradient},
      {v1::Instruction::kDynamicUpdate, DynamicUpdateGradient},
  };
}

}  // namespace vpod::graph
