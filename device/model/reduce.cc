#include <algorithm>

#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"
#include "device/model/reduction.h"

namespace vpod::model {
namespace {

// The least number whose power is at least `n`.
uint64_t RootOf(uint64_t n, int power) {
  for (uint64_t root = 1;; ++root) {
    uint64_t product = 1;
    for (int i = 0; i < power; ++i) product *= root;
    if (product >= n) return root;
  }
}

}  // namespace

uint64_t AddCycles(uint64_t outputs, uint64_t depth, bool half) {
  const uint64_t vector = half ? 8 : 4;
  const uint64_t loops = CeilDiv(CeilDiv(outputs, vector), arch::kWorkersPerTile);
  return outputs % vector == 0 ? 33 + 6 * (20 + loops * (2 * (depth - 1) + 9))
                               : 6 * (32 + loops * (3 * depth + 8));
}

std::vector<ReduceStage> ReductionOf(uint64_t partials, uint64_t depth, bool half) {
  std::vector<ReduceStage> stages;
  if (depth <= 1) return stages;
  for (int left = depth < 16 ? 1 : depth < 125 ? 2 : 3; left > 0; --left) {
    const uint64_t of_stage = RootOf(depth, left), outputs = CeilDiv(partials, of_stage);
    stages.push_back({partials * (half ? 2 : 4), AddCycles(outputs, of_stage, half), of_stage});
    partials = outputs;
    depth = CeilDiv(depth, of_stage);
  }
  return stages;
}

std::vector<PlanStep> StepsOf(const std::vector<ReduceStage>& stages, uint32_t tiles) {
  std::vector<PlanStep> steps;
  for (const ReduceStage& stage : stages) {
    steps.push_back(TileExchangeStep(stage.bytes, stage.sources));
    steps.push_back({ComputeSet{
        {{.tiles = tiles, .vertex = Vertex::kReduction, .supervisor_cycles = stage.cycles}}}});
  }
  return steps;
}

std::vector<PlanStep> ReduceSteps(const Reduction& reduction, program::v1::DataType type) {
  const auto [inputs, outputs, inner, cycles_per_vector] = reduction;
  const uint64_t tiles = TilesFor(inputs), on_a_tile = CeilDiv(inputs, tiles);
  // Partial results of a tile: of lines that follow one another, or of all that have a part there.
  const uint64_t each = std::max<uint64_t>(1, outputs);
  const uint64_t line = std::max<uint64_t>(1, CeilDiv(inputs, each));
  const uint64_t partials = inner ? CeilDiv(on_a_tile, line) : std::min(outputs, on_a_tile);
  const uint64_t depth = CeilDiv(tiles * partials, each);
  PlanStep local = ElementwiseStep(inputs, type, cycles_per_vector);
  for (TileWork& tile : std::get<ComputeSet>(local.work).classes) tile.vertex = Vertex::kReduction;
  std::vector<PlanStep> steps = {std::move(local)};
  for (PlanStep& step :
       StepsOf(ReductionOf(partials, depth, /*half=*/false), static_cast<uint32_t>(tiles)))
    steps.push_back(std::move(step));
  return steps;
}

namespace {

TilePlan ReducePlan(const Instruction& instruction, const PlanContext& context) {
  const program::TensorType input = context.Type(instruction.inputs(0));
  const auto& axes = instruction.reduce().axes();
  const bool inner =
      instruction.has_arg_max() || axes.empty() || axes[axes.size() - 1] + 1 == input.dims.size();
  return {ReduceSteps({.inputs = static_cast<uint64_t>(input.elements()),
                       .outputs = context.Elements(instruction.outputs(0)),
                       .inner = inner},
                      input.type)};
}

}  // namespace

std::vector<PlanDef> ReducePlans() {
  return {{Instruction::kReduce, ReducePlan}, {Instruction::kArgMax, ReducePlan}};
}

}  // namespace vpod::model
