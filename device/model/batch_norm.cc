#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// A pass over x for the moments (or for the two sums of the gradient), their reduction, and a pass
// that multiplies and adds.
TilePlan NormalizePlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  const uint64_t channels = context.Elements(instruction.outputs(1));
  TilePlan plan = context.Elementwise(x, 6);
  plan.Add(ReduceSteps(context.Elements(x), 2 * channels, context.Type(x).type));
  plan.Add(ElementwiseStep(context.Type(x), 6));
  return plan;
}

}  // namespace

std::vector<PlanDef> BatchNormPlans() {
  return {{Instruction::kBatchNorm, NormalizePlan},
          {Instruction::kBatchNormInference,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.inputs(0), 6);
           }},
          {Instruction::kBatchNormGradient, NormalizePlan}};
}

}  // namespace vpod::model
