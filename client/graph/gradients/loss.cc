#include <utility>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

void SoftmaxCrossEntropyGradient(Graph& graph, const v1::Instruction& forward,
                                 GradientMap& gradients) {
  const Tensor logits{forward.inputs(0)}, labels{forward.inputs(1)};
  const Tensor loss{forward.outputs(0)}, probabilities{forward.outputs(1)};
  const Tensor dloss = gradients.Get(loss.id);
  if (!dloss.valid()) return;  // no gradient comes from the probabilities
  v1::Instruction op;
  const v1::SoftmaxCrossEntropy& from = forward.softmax_cross_entropy();
  auto& to = *op.mutable_softmax_cross_entropy_gradient();
  to.set_label_smoothing(from.label_smoothing());
  if (from.has_ignored_label()) to.set_ignored_label(from.ignored_label());
  const auto outputs = graph.AddOperation(std::move(op), {probabilities, labels, dloss});
  if (!outputs.empty()) gradients.Add(logits.id, outputs[0]);
}

}  // namespace

std::vector<GradientDef> LossGradients() {
  return {
      {v1::Instruction::kSoftmaxCrossEntropy, SoftmaxCrossEntropyGradient},
      {.kind = v1::Instruction::kSoftmaxCrossEntropyGradient,
       .missing = "the gradient of cross-entropy has no derivative here"},
  };
}

}  // namespace vpod::graph
