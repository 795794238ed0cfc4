#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Vector cycles of what an op takes over: an addition and an activation or its gradient. A RELU
// takes one cycle less than by itself, as it neither loads nor stores.
template <class Op>
double FusedCycles(const Op& op, bool half) {
  double cycles = op.add() ? 2 : 0;
  if (op.activation() == program::v1::RELU) return cycles + 1;
  if (op.activation() != program::v1::UNARY_OPERATOR_UNSPECIFIED)
    cycles += UnaryCycles(op.activation(), half);
  return cycles;
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
  TilePlan plan = context.Elementwise(x, 6);
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
