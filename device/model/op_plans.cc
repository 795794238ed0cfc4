#include "device/model/op_plans.h"

#include "device/program/op_rows.h"

namespace vpod::model {

const PlanDef* FindPlan(program::OpKind kind) {
  static const auto* const table = new program::OpRows<PlanDef>{
      BatchNormPlans,   CollectivePlans, ControlPlans, ConvolutionPlans, DataMovementPlans,
      ElementwisePlans, LossPlans,       MatMulPlans,  OptimizerPlans,   PoolingPlans,
      RandomPlans,      ReducePlans,     TransferPlans};
  return table->Find(kind);
}

TilePlan Plan(const Instruction& instruction, const PlanContext& context) {
  return FindPlan(instruction.attributes_case())->plan(instruction, context);
}

}  // namespace vpod::model
