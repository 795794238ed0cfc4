#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// With y = A·B, A = a or aᵀ, B = b or bᵀ: dA = dy·Bᵀ and dB = Aᵀ·dy, transposed back where the
// operand is stored so.
void MatMulGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::MatMul& op = forward.mat_mul();
  const Tensor a{forward.inputs(0)}, b{forward.inputs(1)};
  const Tensor dy = gradients.Get(forward.outputs(0));
  const bool ta = op.transpose_a(), tb = op.transpose_b();
  gradients.Add(a.id, ta ? graph.MatMul(b, dy, tb, true) : graph.MatMul(dy, b, false, !tb));
  gradients.Add(b.id, tb ? graph.MatMul(dy, a, true, ta) : graph.MatMul(a, dy, !ta, false));
}

}  // namespace

std::vector<GradientDef> MatMulGradients() { return {{v1::Instruction::kMatMul, MatMulGradient}}; }

}  // namespace vpod::graph
