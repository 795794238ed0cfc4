#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Indices reach every tile; the elements that they choose are read, brought to another tile and
// written or combined.
void AddChoice(TilePlan& plan, const PlanContext& context, uint32_t indices, uint32_t part,
               double cycles_per_vector) {
  const program::TensorType type = context.Type(part);
  plan.Add(TileExchangeStep(context.Type(indices).bytes()));
  plan.Add(ElementwiseStep(type, cycles_per_vector));
  plan.Add(TileExchangeStep(CeilDiv(type.bytes(), arch::kTilesPerIpu)));
}

}  // namespace

std::vector<PlanDef> GatherPlans() {
  return {{Instruction::kGather,
           [](const Instruction& instruction, const PlanContext& context) {
             TilePlan plan;
             AddChoice(plan, context, instruction.inputs(1), instruction.outputs(0), 2);
             return plan;
           }},
          {Instruction::kScatter,
           [](const Instruction& instruction, const PlanContext& context) {
             TilePlan plan;
             if (instruction.inputs(0) != instruction.outputs(0))
               plan = ElementwisePlan(context, instruction.outputs(0), 2);
             AddChoice(plan, context, instruction.inputs(1), instruction.inputs(2), 3);
             return plan;
           }},
          {Instruction::kIota, [](const Instruction& instruction, const PlanContext& context) {
             return ElementwisePlan(context, instruction.outputs(0), 1);
           }}};
}

}  // namespace vpod::model
