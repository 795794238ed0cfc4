#include "device/engine/collective.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace vpod::engine {
namespace {

fabric::Kind KindOf(program::OpKind kind) {
  using program::v1::Instruction;
  static const auto* const kinds = new std::map<program::OpKind, fabric::Kind>{
      {Instruction::kAllReduce, fabric::Kind::kAllReduce},
      {Instruction::kReduceScatter, fabric::Kind::kReduceScatter},
      {Instruction::kAllGather, fabric::Kind::kAllGather},
      {Instruction::kAllToAll, fabric::Kind::kAllToAll},
      {Instruction::kBroadcast, fabric::Kind::kBroadcast}};
  return kinds->at(kind);
}

fabric::Operator OperatorOf(program::v1::ReduceOperator op) {
  switch (op) {
    case program::v1::MAX:
      return fabric::Operator::kMax;
    case program::v1::MIN:
      return fabric::Operator::kMin;
    case program::v1::PRODUCT:
      return fabric::Operator::kProduct;
    case program::v1::SQUARE_ADD:
      return fabric::Operator::kSquareAdd;
    default:
      return fabric::Operator::kSum;
  }
}

fabric::Element ElementOf(const program::v1::Tensor& tensor) {
  if (tensor.wide_accumulator()) return fabric::Element::kFloat64;
  if (tensor.type() == program::v1::INT32) return fabric::Element::kInt32;
  return tensor.type() == program::v1::FLOAT16 ? fabric::Element::kFloat16
                                               : fabric::Element::kFloat32;
}

}  // namespace

fabric::Collective Describe(const program::Collective& op, const program::v1::Ipu& ipu,
                            uint32_t members) {
  fabric::Collective collective;
  collective.kind = KindOf(op.kind);
  if (op.reduces()) collective.op = OperatorOf(op.op);
  if (op.op == program::v1::MEAN) collective.scale = 1.0 / static_cast<double>(members);
  collective.root = op.root;
  uint64_t elements = 0;
  const auto tensor_at = [&](uint32_t index) -> const program::v1::Tensor& {
    return ipu.tensors(static_cast<int>(index));
  };
  for (int i = 0; i < op.inputs->size(); ++i) {
    const program::v1::Tensor &input = tensor_at(op.inputs->Get(i)),
                              &output = tensor_at(op.outputs->Get(i));
    collective.tensors.push_back({input.offset(), output.offset(),
                                  static_cast<size_t>(program::TypeOf(input).elements()),
                                  ElementOf(input), ElementOf(output)});
    elements += collective.tensors.back().elements;
  }
  collective.what = absl::StrCat(
      op.name(), op.reduces() ? absl::StrCat(" ", program::v1::ReduceOperator_Name(op.op)) : "",
      " over ", elements, " elements");
  return collective;
}

}  // namespace vpod::engine
