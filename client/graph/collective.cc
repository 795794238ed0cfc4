#include "device/program/ops/collective.h"

#include <utility>

#include "client/graph/graph.h"
#include "device/program/op.h"

namespace vpod::graph {

Tensor Graph::AddCollective(v1::Instruction instruction, Tensor input, uint32_t members) {
  const auto op = program::CollectiveOf(instruction);
  absl::Status status = program::CheckCollective(*op);
  if (!status.ok()) return Fail(std::move(status));
  auto type = program::CollectiveType(*op, TypeOf(input), members);
  if (!type.ok()) return Fail(type.status());
  const Tensor output = NewValue(*std::move(type));
  program::RenumberTensors(instruction, [&](uint32_t, program::Access access) {
    return program::Writes(access) ? output.id : input.id;
  });
  AddNode(std::move(instruction));
  return output;
}

namespace {

// With one tensor on each side, yet to be named.
template <class Op>
void Prepare(Op* op, const v1::ReplicaGroup& group) {
  op->add_inputs(0);
  op->add_outputs(0);
  *op->mutable_group() = group;
}

}  // namespace

Tensor Graph::AllReduce(v1::ReduceOperator op, Tensor input, const v1::ReplicaGroup& group) {
  if (!Usable({input})) return {};
  v1::Instruction instruction;
  Prepare(instruction.mutable_all_reduce(), group);
  instruction.mutable_all_reduce()->set_operator_(op);
  return AddCollective(std::move(instruction), input, 1);
}

Tensor Graph::ReduceScatter(v1::ReduceOperator op, Tensor input, uint32_t members,
                            const v1::ReplicaGroup& group) {
  if (!Usable({input})) return {};
  v1::Instruction instruction;
  Prepare(instruction.mutable_reduce_scatter(), group);
  instruction.mutable_reduce_scatter()->set_operator_(op);
  return AddCollective(std::move(instruction), input, members);
}

Tensor Graph::AllGather(Tensor input, uint32_t members, const v1::ReplicaGroup& group) {
  if (!Usable({input})) return {};
  v1::Instruction instruction;
  Prepare(instruction.mutable_all_gather(), group);
  return AddCollective(std::move(instruction), input, members);
}

Tensor Graph::AllToAll(Tensor input, uint32_t members, const v1::ReplicaGroup& group) {
  if (!Usable({input})) return {};
  v1::Instruction instruction;
  Prepare(instruction.mutable_all_to_all(), group);
  return AddCollective(std::move(instruction), input, members);
}

Tensor Graph::Broadcast(uint32_t root, Tensor input, const v1::ReplicaGroup& group) {
  if (!Usable({input})) return {};
  v1::Instruction instruction;
  Prepare(instruction.mutable_broadcast(), group);
  instruction.mutable_broadcast()->set_root(root);
  return AddCollective(std::move(instruction), input, 1);
}

}  // namespace vpod::graph
