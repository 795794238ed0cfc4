#include "device/program/ops/pooling.h"

#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Vectors of channels for each element of each window (spec/planner.md 5).
TilePlan WindowsPlan(const Instruction& instruction, uint32_t image, uint32_t pooled,
                     double cycles_per_vector, const PlanContext& context) {
  const double elements =
      program::PoolingElements(instruction, context.Type(image), context.Type(pooled));
  return {{ElementwiseStep(static_cast<uint64_t>(elements), context.Type(pooled).type,
                           cycles_per_vector)}};
}

TilePlan PoolPlan(const Instruction& instruction, const PlanContext& context) {
  return WindowsPlan(instruction, instruction.inputs(0), instruction.outputs(0), 3, context);
}
TilePlan GradientPlan(const Instruction& instruction, const PlanContext& context) {
  return WindowsPlan(instruction, instruction.outputs(0), instruction.inputs(0), 5, context);
}

}  // namespace

std::vector<PlanDef> PoolingPlans() {
  return {{Instruction::kMaxPool, PoolPlan},
          {Instruction::kMaxPoolGradient, GradientPlan},
          {Instruction::kAveragePool, PoolPlan},
          {Instruction::kAveragePoolGradient, GradientPlan}};
}

}  // namespace vpod::model
