#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {

namespace {

// Elements that change their place: read, brought to another tile, written.
TilePlan MovePlan(const Instruction& instruction, const PlanContext& context) {
  TilePlan plan = ElementwisePlan(context, instruction.outputs(0), 2);
  plan.Add(
      TileExchangeStep(CeilDiv(context.Type(instruction.outputs(0)).bytes(), arch::kTilesPerIpu)));
  return plan;
}

// The copy of a destination that is not its own output; then the update moves.
TilePlan DynamicUpdatePlan(const Instruction& instruction, const PlanContext& context) {
  const program::TensorType update = context.Type(instruction.inputs(1));
  TilePlan plan;
  if (instruction.inputs(0) != instruction.outputs(0))
    plan = ElementwisePlan(context, instruction.outputs(0), 2);
  plan.Add(ElementwiseStep(update, 2));
  plan.Add(TileExchangeStep(CeilDiv(update.bytes(), arch::kTilesPerIpu)));
  return plan;
}

}  // namespace

std::vector<PlanDef> DataMovementPlans() {
  return {{Instruction::kFill,
           [](const Instruction& instruction, const PlanContext& context) {
             return ElementwisePlan(context, instruction.outputs(0), 1);
           },
           ResultsLie::kInPlace},
          {Instruction::kCopy,
           [](const Instruction& instruction, const PlanContext& context) {
             return ElementwisePlan(context, instruction.outputs(0), 2);
           },
           ResultsLie::kLikeOperand},
          {Instruction::kTranspose, MovePlan},
          {Instruction::kSlice, MovePlan},
          {Instruction::kExpand, MovePlan},
          {Instruction::kPad, MovePlan},
          {Instruction::kConcat, MovePlan},
          {Instruction::kDynamicSlice, MovePlan},
          {Instruction::kDynamicUpdate, DynamicUpdatePlan}};
}

}  // namespace vpod::model
