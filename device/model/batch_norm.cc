#include "device/model/op_plans.h"
#include "device/program/activations.h"

namespace vpod::model {
namespace {

// Cycles of a vector in each element-by-element function (F20).
constexpr double kLoadAndStore = 2;

// Vector cycles of what an op takes over: an addition and an activation. Fused, neither loads nor
// stores.
template <class Op>
double FusedCycles(const Op& op, bool half) {
  double cycles = op.add() ? 2 : 0;
  if (op.activation() != program::v1::UNARY_OPERATOR_UNSPECIFIED)
    cycles += UnaryCycles(op.activation(), half) - kLoadAndStore;
  return cycles;
}

// The same of a gradient: y is found again by a product and a sum.
double FusedCycles(const program::v1::BatchNormGradient& op, bool half) {
  const double cycles = (op.add() ? 2 : 0) + (op.recompute() ? 2 : 0);
  if (!program::IsActivation(op.activation())) return cycles;
  return cycles + BinaryCycles(program::GradientOf(op.activation()), half) - kLoadAndStore;
}

// A pass over x for the moments (or for the two sums of the gradient), their reduction, and a pass
// that multiplies and adds.
TilePlan NormalizePlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  const bool half = context.IsHalf(x);
  const double fused = instruction.has_batch_norm()
                           ? FusedCycles(instruction.batch_norm(), half)
                           : FusedCycles(instruction.batch_norm_gradient(), half);
  const uint64_t channels = context.Elements(instruction.outputs(1));
  // The gradient needs what it takes over in both passes, unless the first keeps it.
  const bool twice =
      instruction.has_batch_norm_gradient() && !instruction.batch_norm_gradient().keep();
  TilePlan plan = context.Elementwise(x, 6 + (twice ? fused : 0));
  plan.Add(ReduceSteps(context.Elements(x), 2 * channels, context.Type(x).type));
  plan.Add(ElementwiseStep(context.Type(x), 6 + fused));
  return plan;
}

}  // namespace

std::vector<PlanDef> BatchNormPlans() {
  return {{Instruction::kBatchNorm, NormalizePlan},
          {Instruction::kBatchNormInference,
           [](const Instruction& instruction, const PlanContext& context) {
             const uint32_t x = instruction.inputs(0);
             return context.Elementwise(
                 x, 6 + FusedCycles(instruction.batch_norm_inference(), context.IsHalf(x)));
           }},
          {Instruction::kBatchNormGradient, NormalizePlan}};
}

}  // namespace vpod::model
