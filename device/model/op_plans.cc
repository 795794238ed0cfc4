#include "device/model/op_plans.h"

#include <algorithm>

#include "device/program/op.h"
#include "device/program/op_rows.h"

namespace vpod::model {

const PlanDef* FindPlan(program::OpKind kind) {
  static const auto* const table = new program::OpRows<PlanDef>{
      BatchNormPlans,   CollectivePlans, ControlPlans,   ConvolutionPlans, DataMovementPlans,
      ElementwisePlans, GatherPlans,     LayerNormPlans, LinePlans,        LossPlans,
      MatMulPlans,      OptimizerPlans,  PoolingPlans,   RandomPlans,      ReducePlans,
      SoftmaxPlans,     TransferPlans};
  return table->Find(kind);
}

TilePlan Plan(const Instruction& instruction, const PlanContext& context) {
  const auto& outputs = instruction.outputs();
  // There is nothing to do for results without elements.
  if (program::FindOp(instruction.attributes_case())->role == program::Role::kKernel &&
      !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), [&](uint32_t tensor) {
        return context.Elements(tensor) == 0;
      }))
    return {};
  return FindPlan(instruction.attributes_case())->plan(instruction, context);
}

}  // namespace vpod::model
