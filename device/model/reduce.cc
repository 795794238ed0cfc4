#include <algorithm>

#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {

std::vector<PlanStep> ReduceSteps(uint64_t inputs, uint64_t outputs, program::v1::DataType type) {
  const uint64_t vector = type == program::v1::FLOAT16 ? 8 : 4;
  const uint64_t per_tile = CeilDiv(inputs, arch::kTilesPerIpu);
  const uint64_t outputs_per_tile = std::max<uint64_t>(1, CeilDiv(outputs, arch::kTilesPerIpu));
  const uint64_t depth = CeilDiv(per_tile, outputs_per_tile);
  const uint64_t loops = CeilDiv(CeilDiv(outputs_per_tile, vector), arch::kWorkersPerTile);
  const TileWork work = {.tiles = TilesFor(inputs),
                         .vertex = Vertex::kReduction,
                         .supervisor_cycles = 33,
                         .worker_cycles = 20 + loops * (depth + 8)};
  return {TileExchangeStep(per_tile * program::SizeOf(type)), {ComputeSet{{work}}}};
}

namespace {

TilePlan ReducePlan(const Instruction& instruction, const PlanContext& context) {
  const program::TensorType input = context.Type(instruction.inputs(0));
  return {.steps = ReduceSteps(static_cast<uint64_t>(input.elements()),
                               context.Elements(instruction.outputs(0)), input.type),
          .bytes = {{.vertex_code = arch::kReduceVertexCodeBytes}}};
}

}  // namespace

std::vector<PlanDef> ReducePlans() {
  return {{Instruction::kReduce, ReducePlan}, {Instruction::kArgMax, ReducePlan}};
}

}  // namespace vpod::model
