#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void SoftmaxCrossEntropyGradient(Graph& graph, const v1::Instruction& forward,
                                 GradientMap& gradients) {
  const v1::SoftmaxCrossEntropy& op = forward.softmax_cross_entropy();
  const Tensor dloss = gradients.Get(op.loss());
  if (!dloss.valid()) return;  // the probabilities are no result of their own
  const Tensor dlogits = graph.NewValue(graph.TypeOf({op.logits()}));
  v1::Instruction instruction;
  auto* gradient = instruction.mutable_softmax_cross_entropy_gradient();
  gradient->set_probabilities(op.probabilities());
  gradient->set_labels(op.labels());
  gradient->set_loss_gradient(dloss.id);
  gradient->set_logits_gradient(dlogits.id);
  graph.AddNode(std::move(instruction));
  gradients.Add(op.logits(), dlogits);
}

}  // namespace

std::vector<GradientDef> LossGradients() {
  return {
      {v1::Instruction::kSoftmaxCrossEntropy, SoftmaxCrossEntropyGradient},
      {v1::Instruction::kSoftmaxCrossEntropyGradient,
       [](Graph& graph, const v1::Instruction&, GradientMap&) {
         graph.Fail(
             absl::UnimplementedError("the gradient of cross-entropy has no derivative here"));
       }},
  };
}

}  // namespace vpod::graph
