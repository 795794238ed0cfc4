#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {

namespace {

// Elements that change their place: read, brought to another tile, written.
TilePlan MovePlan(const Instruction& instruction, const PlanContext& context) {
  TilePlan plan = context.Elementwise(instruction.outputs(0), 2);
  plan.Add(
      TileExchangeStep(CeilDiv(context.Type(instruction.outputs(0)).bytes(), arch::kTilesPerIpu)));
  return plan;
}

}  // namespace

std::vector<PlanDef> DataMovementPlans() {
  return {{Instruction::kFill,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.outputs(0), 1);
           }},
          {Instruction::kCopy,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.outputs(0), 2);
           }},
          {Instruction::kCast,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.outputs(0), 3);
           }},
          {Instruction::kTranspose, MovePlan},
          {Instruction::kSlice, MovePlan},
          {Instruction::kExpand, MovePlan},
          {Instruction::kPad, MovePlan},
          {Instruction::kConcat, MovePlan}};
}

}  // namespace vpod::model
