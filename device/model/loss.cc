#include "device/arch/vertex_cycles.h"
#include "device/model/op_plans.h"

namespace vpod::model {

std::vector<PlanDef> LossPlans() {
  return {{Instruction::kSoftmaxCrossEntropy,
           [](const Instruction& instruction, const PlanContext& context) {
             // Maximum, subtraction, exponential, sum, division and logarithm.
             return ElementwisePlan(context, instruction.inputs(0), 25);
           }},
          {Instruction::kSoftmaxCrossEntropyGradient,
           [](const Instruction& instruction, const PlanContext& context) {
             return ElementwisePlan(context, instruction.inputs(0), 2 * arch::kPassCycles);
           }}};
}

}  // namespace vpod::model
