#include <utility>

#include "client/graph/graph.h"

namespace vpod::graph {

Tensor Graph::Transpose(Tensor input, const std::vector<uint32_t>& permutation) {
  v1::Instruction op;
  op.mutable_transpose()->mutable_permutation()->Add(permutation.begin(), permutation.end());
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Slice(Tensor input, const Dims& begin, const Dims& size, Dims step) {
  if (step.empty()) step.assign(begin.size(), 1);
  v1::Instruction op;
  op.mutable_slice()->mutable_begin()->Add(begin.begin(), begin.end());
  op.mutable_slice()->mutable_size()->Add(size.begin(), size.end());
  op.mutable_slice()->mutable_step()->Add(step.begin(), step.end());
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Expand(Tensor input, const Dims& dims) {
  v1::Instruction op;
  op.mutable_expand()->mutable_dims()->Add(dims.begin(), dims.end());
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Pad(Tensor input, const Dims& before, const Dims& after, double value) {
  v1::Instruction op;
  op.mutable_pad()->mutable_before()->Add(before.begin(), before.end());
  op.mutable_pad()->mutable_after()->Add(after.begin(), after.end());
  op.mutable_pad()->set_value(value);
  return AddSimple(std::move(op), {input});
}

Tensor Graph::Concat(const std::vector<Tensor>& inputs, uint32_t axis) {
  v1::Instruction op;
  op.mutable_concat()->set_axis(axis);
  return AddSimple(std::move(op), inputs);
}

Tensor Graph::DynamicSlice(Tensor input, Tensor start, const std::vector<uint32_t>& axes,
                           const Dims& size) {
  v1::Instruction op;
  op.mutable_dynamic_slice()->mutable_axes()->Add(axes.begin(), axes.end());
  op.mutable_dynamic_slice()->mutable_size()->Add(size.begin(), size.end());
  return AddSimple(std::move(op), {input, start});
}

Tensor Graph::DynamicUpdate(Tensor destination, Tensor update, Tensor start,
                            const std::vector<uint32_t>& axes) {
  v1::Instruction op;
  op.mutable_dynamic_update()->mutable_axes()->Add(axes.begin(), axes.end());
  return AddSimple(std::move(op), {destination, update, start});
}

}  // namespace vpod::graph
