#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Maximum and sum of each row, a pass each.
constexpr double kRowCycles = 1;

// Maximum, subtraction, exponential, sum and product (spec/planner.md 5).
TilePlan ForwardPlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  const double exponential = UnaryCycles(program::v1::EXPONENT, context.Type(x).type).cycles;
  return ElementwisePlan(context, x, 2 * kRowCycles + 2 * kBroadcastCycles + exponential);
}

// Product, sum, subtraction and product.
TilePlan GradientPlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t y = instruction.inputs(0);
  const double product = BinaryCycles(program::v1::MULTIPLY, context.Type(y).type).cycles;
  return ElementwisePlan(context, y, 2 * product + kRowCycles + kBroadcastCycles);
}

}  // namespace

std::vector<PlanDef> SoftmaxPlans() {
  return {{Instruction::kSoftmax, ForwardPlan, ResultsLie::kLikeOperand},
          {Instruction::kSoftmaxGradient, GradientPlan, ResultsLie::kLikeOperand}};
}

}  // namespace vpod::model
