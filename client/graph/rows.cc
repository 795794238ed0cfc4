// Operations on the rows of a tensor, and those that choose by index.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/graph/graph.h"
#include "device/program/op.h"

namespace vpod::graph {

// The op works on the last axis: another one is brought there and back.
Tensor Graph::OverAxis(Tensor input, uint32_t axis, const v1::Instruction& op) {
  const std::string name = program::OpName(op.attributes_case());
  if (!Usable({input}, name)) return {};
  const uint32_t rank = static_cast<uint32_t>(TypeOf(input).rank());
  if (axis >= rank) {
    return Refuse(name,
                  absl::StrCat("axis ", axis, " does not exist in ", TypeOf(input).ToString()));
  }
  if (axis + 1 == rank) return AddSimple(op, {input});
  std::vector<uint32_t> swapped(rank);
  for (uint32_t i = 0; i < rank; ++i) swapped[i] = i;
  std::swap(swapped[axis], swapped[rank - 1]);
  return Transpose(AddSimple(op, {Transpose(input, swapped)}), swapped);
}

Tensor Graph::Softmax(Tensor input, uint32_t axis) {
  v1::Instruction op;
  op.mutable_softmax();
  return OverAxis(input, axis, op);
}

Tensor Graph::LogSoftmax(Tensor input, uint32_t axis) {
  v1::Instruction op;
  op.mutable_softmax()->set_logarithm(true);
  return OverAxis(input, axis, op);
}

Tensor Graph::LayerNorm(Tensor x, Tensor scale, Tensor offset, float epsilon) {
  v1::Instruction op;
  op.mutable_layer_norm()->set_epsilon(epsilon);
  std::vector<Tensor> inputs = {x};
  if (scale.valid() || offset.valid()) inputs.insert(inputs.end(), {scale, offset});
  const std::vector<Tensor> outputs = AddOperation(std::move(op), std::move(inputs));
  return outputs.empty() ? Tensor{} : outputs[0];
}

Tensor Graph::Gather(Tensor input, Tensor indices, uint32_t axis, bool along, bool labels) {
  v1::Instruction op;
  op.mutable_gather()->set_axis(axis);
  op.mutable_gather()->set_along(along);
  op.mutable_gather()->set_labels(labels);
  return AddSimple(std::move(op), {input, indices});
}

Tensor Graph::Scatter(v1::Scatter::Combine combine, Tensor destination, Tensor indices,
                      Tensor update, uint32_t axis, bool along, bool labels) {
  if (!Usable({destination, indices, update}, "scatter")) return {};
  const v1::DataType type = TypeOf(destination).type;
  const bool rounds = combine == v1::Scatter::ADD || combine == v1::Scatter::MULTIPLY;
  const bool widens = type == v1::FLOAT16 && TypeOf(update).type == type && rounds;
  if (widens) {
    destination = Cast(destination, v1::FLOAT32);
    update = Cast(update, v1::FLOAT32);
  }
  v1::Instruction op;
  op.mutable_scatter()->set_combine(combine);
  op.mutable_scatter()->set_axis(axis);
  op.mutable_scatter()->set_along(along);
  op.mutable_scatter()->set_labels(labels);
  const Tensor result = AddSimple(std::move(op), {destination, indices, update});
  return widens ? Cast(result, type) : result;
}

Tensor Graph::Cumulate(v1::ReduceOperator function, Tensor input, uint32_t axis,
                       const CumulateOptions& options) {
  v1::Instruction op;
  op.mutable_cumulate()->set_operator_(function);
  op.mutable_cumulate()->set_axis(axis);
  op.mutable_cumulate()->set_exclusive(options.exclusive);
  op.mutable_cumulate()->set_reverse(options.reverse);
  return AddSimple(std::move(op), {input});
}

Graph::Sorted Graph::Sort(Tensor input, uint32_t axis, bool descending,
                          std::optional<int64_t> count) {
  if (!Usable({input}, "sort")) return {};
  const Dims& dims = TypeOf(input).dims;
  v1::Instruction op;
  op.mutable_sort()->set_axis(axis);
  op.mutable_sort()->set_descending(descending);
  op.mutable_sort()->set_count(count ? *count : axis < dims.size() ? dims[axis] : 0);
  const std::vector<Tensor> outputs = AddOperation(std::move(op), {input});
  return outputs.empty() ? Sorted{} : Sorted{outputs[0], outputs[1]};
}

Tensor Graph::Iota(TensorType type, uint32_t axis) {
  v1::Instruction op;
  op.mutable_iota()->set_type(type.type);
  op.mutable_iota()->mutable_dims()->Add(type.dims.begin(), type.dims.end());
  op.mutable_iota()->set_axis(axis);
  return AddSimple(std::move(op), {});
}

}  // namespace vpod::graph
