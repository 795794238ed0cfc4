#include "client/graph/gradients/gradients.h"

namespace vpod::graph {

void SoftmaxCrossEntropyGradient(Graph& graph, const v1::SoftmaxCrossEntropy& op,
                                 GradientMap& gradients) {
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

}  // namespace vpod::graph
