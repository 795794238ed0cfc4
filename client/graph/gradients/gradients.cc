#include "client/graph/gradients/gradients.h"

#include <set>

#include "client/graph/instruction_tensors.h"

namespace vpod::graph {

void GradientMap::Add(uint32_t value, Tensor gradient) {
  if (!gradient.valid() || !program::IsFloat(graph_.TypeOf({value}).type)) return;
  const Tensor before = Get(value);
  gradients_[value] = before.valid() ? graph_.Add(before, gradient) : gradient;
}

std::vector<Tensor> Graph::Gradients(Tensor loss, absl::Span<const Tensor> wanted) {
  if (!Usable({loss})) return std::vector<Tensor>(wanted.size());
  for (Tensor tensor : wanted) {
    if (!Usable({tensor})) return std::vector<Tensor>(wanted.size());
  }
  if (!program::IsFloat(TypeOf(loss).type)) {
    Fail(absl::InvalidArgumentError("the loss must be a float tensor"));
    return std::vector<Tensor>(wanted.size());
  }
  const uint32_t ipu_before = ipu_;
  GradientMap gradients(*this);
  ipu_ = values_[loss.id].ipu;
  gradients.Add(loss.id, Constant(TypeOf(loss), 1));

  // Reverse order of creation is a reverse topological order. Aliases stand between nodes by their
  // ids.
  std::map<uint32_t, size_t> producer;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    VisitTensors(
        nodes_[i].instruction, [](uint32_t*) {}, [&](uint32_t* id) { producer[*id] = i; });
  }
  std::set<size_t> done;
  for (uint32_t id = loss.id + 1; id-- > 0;) {
    const Tensor gradient = gradients.Get(id);
    if (values_[id].alias_of != ~0u) {
      if (gradient.valid()) {
        const uint32_t source = values_[id].alias_of;
        gradients.Add(source, Reshape(gradient, TypeOf({source}).dims));
      }
      continue;
    }
    const auto it = producer.find(id);
    if (it == producer.end() || !gradient.valid() || !done.insert(it->second).second) continue;
    const Node op = nodes_[it->second];  // a copy: nodes_ grows
    ipu_ = op.ipu;
    switch (op.instruction.step_case()) {
      case v1::Instruction::kUnary:
        UnaryGradient(*this, op.instruction.unary(), gradients);
        break;
      case v1::Instruction::kBinary:
        BinaryGradient(*this, op.instruction.binary(), gradients);
        break;
      case v1::Instruction::kCast:
        CastGradient(*this, op.instruction.cast(), gradients);
        break;
      case v1::Instruction::kReduce:
        ReduceGradient(*this, op.instruction.reduce(), gradients);
        break;
      case v1::Instruction::kMatMul:
        MatMulGradient(*this, op.instruction.mat_mul(), gradients);
        break;
      case v1::Instruction::kConv2D:
        Conv2dGradient(*this, op.instruction.conv2d(), gradients);
        break;
      case v1::Instruction::kMaxPool2D:
        MaxPool2dGradient(*this, op.instruction.max_pool2d(), gradients);
        break;
      case v1::Instruction::kSoftmaxCrossEntropy:
        SoftmaxCrossEntropyGradient(*this, op.instruction.softmax_cross_entropy(), gradients);
        break;
      case v1::Instruction::kAllReduce:
      case v1::Instruction::kReduceScatter:
      case v1::Instruction::kAllGather:
      case v1::Instruction::kAllToAll:
      case v1::Instruction::kBroadcast:
        CollectiveGradient(*this, op.instruction, gradients);
        break;
      case v1::Instruction::kMaxPool2DGradient:
        Fail(absl::UnimplementedError("the gradient of max-pool has no derivative here"));
        break;
      case v1::Instruction::kSoftmaxCrossEntropyGradient:
        Fail(absl::UnimplementedError("the gradient of cross-entropy has no derivative here"));
        break;
      default:
        break;  // no derivative: the gradient stops here
    }
  }
  std::vector<Tensor> result;
  for (Tensor tensor : wanted) {
    const Tensor gradient = gradients.Get(tensor.id);
    ipu_ = values_[tensor.id].ipu;
    result.push_back(gradient.valid() ? gradient : Constant(TypeOf(tensor), 0));
  }
  ipu_ = ipu_before;
  return result;
}

}  // namespace vpod::graph
