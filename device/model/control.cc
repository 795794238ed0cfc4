#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Nothing on the tiles: the functions that they execute are planned by themselves.
TilePlan ControlPlan(const Instruction&, const PlanContext&) { return {}; }

}  // namespace

std::vector<PlanDef> ControlPlans() {
  return {{Instruction::kCall, ControlPlan},
          {Instruction::kRepeat, ControlPlan},
          {Instruction::kIf, ControlPlan},
          {Instruction::kWhile, ControlPlan}};
}

}  // namespace vpod::model
