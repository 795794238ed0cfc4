#include "device/model/op_plans.h"

namespace vpod::model {

std::vector<PlanDef> SoftmaxPlans() {
  return {{Instruction::kSoftmax,
           [](const Instruction& instruction, const PlanContext& context) {
             // Maximum, subtraction, exponential, sum and division.
             return context.Elementwise(instruction.inputs(0), 22);
           }},
          {Instruction::kSoftmaxGradient,
           [](const Instruction& instruction, const PlanContext& context) {
             // Product, sum, subtraction and product.
             return context.Elementwise(instruction.inputs(0), 12);
           }}};
}

}  // namespace vpod::model
