#include "device/model/norm.h"

namespace vpod::model {
namespace {

// Moments of each row, by which the row is whitened, then scale and offset.
TilePlan ForwardPlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  TilePlan plan;
  AddSums(plan, context.Type(x), context.Elements(instruction.outputs(1)), /*inner=*/true);
  plan.Add(ElementwiseStep(context, x, kNormCycles));
  if (instruction.inputs_size() > 1) plan.Add(ElementwiseStep(context, x, kNormCycles));
  return plan;
}

TilePlan GradientPlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  TilePlan plan;
  AddSums(plan, context.Type(x), context.Elements(instruction.inputs(2)), /*inner=*/true);
  plan.Add(ElementwiseStep(context, x, kNormGradientCycles));
  return plan;
}

}  // namespace

std::vector<PlanDef> LayerNormPlans() {
  return {{Instruction::kLayerNorm, ForwardPlan, ResultsLie::kLikeOperand},
          {Instruction::kLayerNormGradient, GradientPlan, ResultsLie::kLikeOperand}};
}

}  // namespace vpod::model
