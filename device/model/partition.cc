#include "device/model/partition.h"

#include <cmath>
#include <utility>

#include "device/model/even.h"
#include "device/model/tile_shape.h"

namespace vpod::model {

using Plane = PlannedConvolution::Plane;

Plane ImageUnder(const PlannedConvolution& c, const Plane& field, const Plane& kernel) {
  Plane image;
  for (size_t i = 0; i < 2; ++i)
    image[i] = ((field[i] - 1) * c.stride[i] + (kernel[i] - 1) * c.dilation[i]) / c.spread[i] + 1;
  return image;
}

TileShape ShapeOf(const PlannedConvolution& c, const Partition& p) {
  const auto blocks = [](uint64_t items, uint64_t at_once, uint64_t parts) {
    return CeilDiv(CeilDiv(items, at_once), parts);
  };
  TileShape t{.group_blocks = blocks(c.groups, p.groups_at_once, p.groups),
              .input_blocks = blocks(c.inputs, p.inputs_at_once, p.inputs),
              .output_blocks = blocks(c.outputs, p.outputs_at_once, p.outputs * p.serial_outputs),
              .batch = CeilDiv(c.batch, p.batch)};
  for (size_t i = 0; i < 2; ++i) {
    t.field[i] = CeilDiv(c.field[i], p.field[i]);
    t.kernel[i] = CeilDiv(c.kernel[i], p.kernel[i]);
  }
  const uint64_t groups = t.group_blocks * p.groups_at_once,
                 inputs = t.input_blocks * p.inputs_at_once,
                 outputs = t.output_blocks * p.outputs_at_once;
  t.image = groups * t.batch * inputs * Product(ImageUnder(c, t.field, t.kernel));
  t.weights = groups * inputs * outputs * Product(t.kernel);
  t.partials = groups * t.batch * outputs * Product(t.field);
  return t;
}

namespace {

PartitionCost::Rearrangement RearrangementOf(uint64_t bytes) {
  const uint64_t of_tile = CeilDiv(bytes, arch::kTilesPerIpu);
  return {of_tile * 5 / 8, of_tile};
}

// The rows of the image and the panels of the weights.
uint64_t FragmentsOf(const PlannedConvolution& c, const TileShape& t) {
  const uint64_t rows = c.field[1] == 1 && c.kernel[1] == 1
                            ? 1  // one after the other
                            : t.batch * ImageUnder(c, t.field, t.kernel)[0];
  return t.group_blocks * t.input_blocks * (rows + t.output_blocks);
}

uint64_t ExchangeCycles(uint64_t bytes) {
  return arch::kInternalSyncCycles + arch::kExchangeFixedCycles +
         static_cast<uint64_t>(
             std::ceil(static_cast<double>(bytes) / arch::kExchangeBytesPerCycle));
}

}  // namespace

uint64_t PartitionCost::total_cycles() const {
  const uint64_t control = arch::kControlCyclesPerStep;
  uint64_t once = 0, each = vertex_cycles + control;
  if (operand_bytes > 0) each += ExchangeCycles(operand_bytes);
  for (const Rearrangement& copy : rearrangements)
    once += copy.cycles + control + ExchangeCycles(copy.bytes);
  for (const ReduceStage& stage : reduction)
    each += stage.cycles + control + ExchangeCycles(stage.bytes);
  return once + serial * each;
}

PartitionCost CostOf(const PlannedConvolution& c, const Partition& p) {
  using Place = PlannedConvolution::Place;
  const TileShape t = ShapeOf(c, p);
  const uint64_t element = c.half ? 2 : 4, partial = c.half_partials ? 2 : 4;
  const uint64_t image = t.image * element, weights = t.weights * element;
  PartitionCost cost{.vertex_cycles = VertexCycles(c, p), .serial = p.serial_outputs};
  // Each of the tiles that need the same weights has a share to begin with.
  cost.operand_bytes = image + weights - weights / (p.batch * Product(p.field));
  if (c.image == Place::kInPlace) cost.operand_bytes -= image / p.outputs;
  cost.fragments = FragmentsOf(c, t);
  // Pointers to the pieces of the operands and results (F6).
  cost.vertex_state_bytes = arch::kVertexStateBytes + sizeof(uint32_t) * t.group_blocks *
                                                          (t.input_blocks * t.output_blocks +
                                                           t.input_blocks + t.output_blocks);
  cost.partial_bytes = t.partials * partial;
  cost.reduction = ReductionOf(t.partials, p.inputs * Product(p.kernel), c.half_partials);
  const uint64_t reduced = cost.reduction.empty() ? 0 : cost.reduction.front().bytes;
  cost.temporary_bytes = image + weights + cost.partial_bytes + reduced;
  const uint64_t whole_image =
      element * c.groups * c.batch * c.inputs * Product(ImageUnder(c, c.field, c.kernel));
  const uint64_t whole_weights = element * c.groups * c.inputs * c.outputs * Product(c.kernel);
  cost.sent_bytes = CeilDiv(whole_image + whole_weights, arch::kTilesPerIpu);
  const bool pads = c.inputs % p.inputs_at_once != 0;
  if (c.image == Place::kInOtherOrder || pads) {
    cost.rearrangements.push_back(RearrangementOf(whole_image));
  }
  if (c.weights == Place::kInOtherOrder || (pads && c.weights != Place::kInPlace)) {
    cost.rearrangements.push_back(RearrangementOf(whole_weights));
  }
  return cost;
}

std::vector<PlanStep> StepsOf(const PartitionCost& cost, const Partition& partition) {
  const auto tiles = static_cast<uint32_t>(partition.tiles());
  std::vector<PlanStep> steps;
  for (const auto& copy : cost.rearrangements) {
    steps.push_back({ComputeSet{{{.tiles = arch::kTilesPerIpu,
                                  .vertex = Vertex::kElementwise,
                                  .supervisor_cycles = copy.cycles}}}});
    steps.push_back(TileExchangeStep(copy.bytes));
  }
  std::vector<PlanStep> parts;
  if (cost.operand_bytes > 0) {
    parts.push_back(TileExchangeStep(
        {.bytes = cost.operand_bytes, .fragments = cost.fragments, .sent_bytes = cost.sent_bytes}));
  }
  parts.push_back({ComputeSet{{{.tiles = tiles,
                                .vertex = Vertex::kConvolution,
                                .supervisor_cycles = cost.vertex_cycles,
                                .state_bytes = cost.vertex_state_bytes}}}});
  for (PlanStep& step : StepsOf(cost.reduction, tiles)) parts.push_back(std::move(step));
  for (PlanStep& step : parts) step.times = cost.serial;
  steps.insert(steps.end(), parts.begin(), parts.end());
  return steps;
}

}  // namespace vpod::model
