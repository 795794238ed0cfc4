#include "device/model/op_plans.h"

namespace vpod::model {

// Cycles for one 64-bit vector; three for each pass of arithmetic (F20).
std::vector<PlanDef> OptimizerPlans() {
  return {{Instruction::kAccumulate,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.inputs(1), 3);
           }},
          {Instruction::kSgd,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.inputs(0),
                                        instruction.outputs_size() > 1 ? 9 : 3);
           }},
          {Instruction::kAdam,
           [](const Instruction& instruction, const PlanContext& context) {
             // Four passes of arithmetic, a square root and a division.
             return context.Elementwise(instruction.inputs(0), 32);
           }},
          {Instruction::kAllFinite,
           [](const Instruction& instruction, const PlanContext& context) {
             TilePlan plan;
             for (uint32_t input : instruction.inputs()) {
               plan.Add(ElementwiseStep(context.Type(input), 3));
               plan.Add(ReduceSteps(context.Elements(input), 1, context.Type(input).type));
             }
             return plan;
           }},
          {Instruction::kUpdateLossScale,
           [](const Instruction& instruction, const PlanContext& context) {
             return context.Elementwise(instruction.inputs(0), 9);
           }}};
}

}  // namespace vpod::model
