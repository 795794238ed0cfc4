#include "device/program/ops/collective.h"

#include "absl/strings/str_cat.h"
#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// The loss of a replicated job is the sum over its replicas: a contribution that reaches several of
// them collects the gradients of all.
void CollectiveGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const program::Collective op = *program::CollectiveOf(forward);
  const v1::ReplicaGroup& group = *op.group;
  const Tensor x{op.inputs->Get(0)}, y{op.outputs->Get(0)};
  const TensorType x_type = graph.TypeOf(x), y_type = graph.TypeOf(y);
  const Tensor dy = gradients.Get(y.id);
  const bool linear = op.op == v1::SUM || op.op == v1::MEAN;
  switch (op.kind) {
    case v1::Instruction::kAllReduce:
      if (!linear) break;
      return gradients.Add(x.id, graph.AllReduce(op.op, dy, group));
    case v1::Instruction::kReduceScatter: {
      if (!linear) break;
      const auto members = static_cast<uint32_t>(x_type.elements() / y_type.elements());
      const Tensor all = graph.AllGather(dy, members, group);
      if (op.op == v1::SUM) return gradients.Add(x.id, all);
      const Tensor share = graph.Multiply(graph.Cast(all, v1::FLOAT32),
                                          graph.Constant({v1::FLOAT32, {}}, 1.0 / members));
      return gradients.Add(x.id, graph.Cast(share, x_type.type));
    }
    case v1::Instruction::kAllGather: {
      const auto members = static_cast<uint32_t>(y_type.elements() / x_type.elements());
      const Tensor part = graph.ReduceScatter(v1::SUM, dy, members, group);
      if (!part.valid()) return;
      return gradients.Add(x.id, graph.Reshape(part, x_type.dims));
    }
    default:
      break;
  }
  graph.Fail(absl::UnimplementedError(
      absl::StrCat("this ", op.name(),
                   " has no derivative here; all-gathers have one, and all-reduces and "
                   "reduce-scatters by SUM or MEAN")));
}

}  // namespace

std::vector<GradientDef> CollectiveGradients() {
  return {
      {v1::Instruction::kAllReduce, CollectiveGradient},
      {v1::Instruction::kReduceScatter, CollectiveGradient},
      {v1::Instruction::kAllGather, CollectiveGradient},
      {v1::Instruction::kAllToAll, CollectiveGradient},
      {v1::Instruction::kBroadcast, CollectiveGradient},
  };
}

}  // namespace vpod::graph
