#include "device/program/ops/collective.h"

#include <utility>

#include "client/graph/graph.h"

namespace vpod::graph {

Tensor Graph::AddCollective(v1::Instruction attributes, Tensor input, uint32_t members) {
  const std::string label = program::LabelOf(attributes);
  if (!Usable({input}, label)) return {};
  const auto op = program::CollectiveOf(attributes);
  const absl::Status status = program::CheckCollective(*op);
  if (!status.ok()) return Refuse(label, status.message());
  auto type = program::CollectiveType(*op, TypeOf(input), members);
  if (!type.ok()) return Refuse(label, type.status().message());
  return AddOperation(std::move(attributes), {input}, *std::move(type));
}

Tensor Graph::AllReduce(v1::ReduceOperator function, Tensor input, const v1::ReplicaGroup& group) {
  v1::Instruction op;
  op.mutable_all_reduce()->set_operator_(function);
  *op.mutable_all_reduce()->mutable_group() = group;
  return AddCollective(std::move(op), input, 1);
}

Tensor Graph::ReduceScatter(v1::ReduceOperator function, Tensor input, uint32_t members,
                            const v1::ReplicaGroup& group) {
  v1::Instruction op;
  op.mutable_reduce_scatter()->set_operator_(function);
  *op.mutable_reduce_scatter()->mutable_group() = group;
  return AddCollective(std::move(op), input, members);
}

Tensor Graph::AllGather(Tensor input, uint32_t members, const v1::ReplicaGroup& group) {
  v1::Instruction op;
  *op.mutable_all_gather()->mutable_group() = group;
  return AddCollective(std::move(op), input, members);
}

Tensor Graph::AllToAll(Tensor input, uint32_t members, const v1::ReplicaGroup& group) {
  v1::Instruction op;
  *op.mutable_all_to_all()->mutable_group() = group;
  return AddCollective(std::move(op), input, members);
}

Tensor Graph::Broadcast(uint32_t root, Tensor input, const v1::ReplicaGroup& group) {
  v1::Instruction op;
  op.mutable_broadcast()->set_root(root);
  *op.mutable_broadcast()->mutable_group() = group;
  return AddCollective(std::move(op), input, 1);
}

}  // namespace vpod::graph
