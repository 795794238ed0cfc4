#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Vector cycles of what an op takes over: an addition and a RELU or its gradient.
template <class Op>
double FusedCycles(const Op& op) {
  return (op.add() ? 2 : 0) + (op.relu() ? 1 : 0);
}

// A pass over x for the moments (or for the two sums of the gradient), their reduction, and a pass
// that multiplies and adds.
TilePlan NormalizePlan(const Instruction& instruction, const PlanContext& context) {
  const double fused = instruction.has_batch_norm()
                           ? FusedCycles(instruction.batch_norm())
                           : FusedCycles(instruction.batch_norm_gradient());
  const uint32_t x = instruction.inputs(0);
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
             return context.Elementwise(instruction.inputs(0),
                                        6 + FusedCycles(instruction.batch_norm_inference()));
           }},
          {Instruction::kBatchNormGradient, NormalizePlan}};
}

}  // namespace vpod::model
