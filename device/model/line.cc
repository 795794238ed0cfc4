#include "device/arch/hardware.h"
#include "device/arch/vertex_cycles.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Each tile adds up its part of the lines, the parts' sums go round, and each tile adds them.
TilePlan CumulatePlan(const Instruction& instruction, const PlanContext& context) {
  const program::TensorType type = context.Type(instruction.inputs(0));
  TilePlan plan;
  plan.Add(ElementwiseStep(type, 2 * arch::kPassCycles));
  plan.Add(TileExchangeStep(CeilDiv(type.bytes(), arch::kTilesPerIpu)));
  plan.Add(ElementwiseStep(type, arch::kPassCycles));
  return plan;
}

// A merge sort: elements with their places are compared once for each doubling of the sorted runs;
// runs that are longer than a tile's part are exchanged before.
TilePlan SortPlan(const Instruction& instruction, const PlanContext& context) {
  const program::TensorType type = context.Type(instruction.inputs(0));
  const auto length =
      static_cast<uint64_t>(type.empty() ? 0 : type.dims[instruction.sort().axis()]);
  const uint64_t elements = static_cast<uint64_t>(type.elements()),
                 on_a_tile = CeilDiv(elements, arch::kTilesPerIpu);
  TilePlan plan;
  for (uint64_t run = 1; run < length; run *= 2) {
    if (run >= on_a_tile) plan.Add(TileExchangeStep(on_a_tile * 2 * sizeof(uint32_t)));
    plan.Add(ElementwiseStep(type, 8));
  }
  plan.Add(ElementwiseStep(context, instruction.outputs(0), 2));
  return plan;
}

}  // namespace

std::vector<PlanDef> LinePlans() {
  return {{Instruction::kCumulate, CumulatePlan}, {Instruction::kSort, SortPlan}};
}

}  // namespace vpod::model
