#include "device/model/op_plans.h"

namespace vpod::model {

std::vector<PlanDef> LayerNormPlans() {
  return {{Instruction::kLayerNorm,
           [](const Instruction& instruction, const PlanContext& context) {
             // Two sums, then subtraction, two products and an addition (F20).
             return context.Elementwise(instruction.inputs(0), 18);
           }},
          {Instruction::kLayerNormGradient,
           [](const Instruction& instruction, const PlanContext& context) {
             // Two products and sums, then two products and subtractions and one product more.
             return context.Elementwise(instruction.inputs(0), 27);
           }}};
}

}  // namespace vpod::model
