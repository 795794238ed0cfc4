#include "device/model/partition.h"

#include <algorithm>

#include "device/model/even.h"

namespace vpod::model {
namespace {

using Plane = PlannedConvolution::Plane;

constexpr uint64_t kWorkers = arch::kWorkersPerTile;
// Output channels of a panel.
constexpr uint64_t kPanelOutputs = 16;

uint64_t Product(const Plane& plane) { return plane[0] * plane[1]; }

// The share of the fullest tile, with channels rounded up to panels.
struct TileShape {
  uint64_t groups, batch, input_panels, output_panels;
  Plane field, kernel;
  uint64_t image, weights, partials;
};

// Pixels of the image under a part of the field and of the window.
Plane ImageUnder(const PlannedConvolution& c, const Plane& field, const Plane& kernel) {
  Plane image;
  for (size_t i = 0; i < 2; ++i)
    image[i] = ((field[i] - 1) * c.stride[i] + (kernel[i] - 1) * c.dilation[i]) / c.spread[i] + 1;
  return image;
}

TileShape ShapeOf(const PlannedConvolution& c, const Partition& p) {
  TileShape t{
      .groups = CeilDiv(c.groups, p.groups),
      .batch = CeilDiv(c.batch, p.batch),
      .input_panels = CeilDiv(CeilDiv(c.inputs, p.channels_at_once), p.inputs),
      .output_panels = CeilDiv(CeilDiv(c.outputs, kPanelOutputs), p.outputs * p.serial_outputs)};
  for (size_t i = 0; i < 2; ++i) {
    t.field[i] = CeilDiv(c.field[i], p.field[i]);
    t.kernel[i] = CeilDiv(c.kernel[i], p.kernel[i]);
  }
  const uint64_t inputs = t.input_panels * p.channels_at_once,
                 outputs = t.output_panels * kPanelOutputs;
  t.image = t.groups * t.batch * inputs * Product(ImageUnder(c, t.field, t.kernel));
  t.weights = t.groups * inputs * outputs * Product(t.kernel);
  t.partials = t.groups * t.batch * outputs * Product(t.field);
  return t;
}

// How often the convolution units go over the outputs of a panel, and the cycles to load their
// weights. Float32 partial results of float16 leave half of the units (planner.md 1).
struct Units {
  uint64_t passes, load;
};
Units UnitsOf(const PlannedConvolution& c) {
  constexpr uint64_t kBytesOfUnit = 32;
  const uint64_t units = c.half && !c.half_partials ? kPanelOutputs / 2 : kPanelOutputs;
  return {kPanelOutputs / units, units * kBytesOfUnit / arch::kWeightBytesPerCycle};
}

// --- The vertex for windows of one element (hardware.md 7.2) ---

uint64_t WorkerCycles1x1(uint64_t rows, bool half, bool zeroes) {
  const uint64_t zero = zeroes ? 1 : 2;
  uint64_t cycles = 0;
  if (rows < 3) {
    constexpr uint64_t kFewRows[] = {20, 31, 40};
    cycles = kFewRows[rows] + zero;
  } else {
    cycles = half ? (zeroes ? 37 : 38) + (rows - 3) * 4 : 46 + (rows - 3) * 8;
  }
  return half ? cycles - 7 : cycles;  // state retention
}

uint64_t Cycles1x1(const PlannedConvolution& c, const TileShape& t) {
  const uint64_t rows = t.batch * Product(t.field);
  const auto inner = [&](bool zeroes) {
    const uint64_t a = WorkerCycles1x1(CeilDiv(rows, kWorkers), c.half, zeroes),
                   b = WorkerCycles1x1(rows / kWorkers, c.half, zeroes);
    return std::max(kWorkers * std::max(a, b), kWorkers * std::min(a, b) + 14);
  };
  const auto [passes, load] = UnitsOf(c);
  const uint64_t first = 11 + t.output_panels * (18 + passes * (7 + load + inner(true))),
                 later = 15 + t.output_panels * (19 + passes * (6 + load + inner(false)));
  return 50 + 6 * (7 + 3 * (t.input_panels * t.groups - 1)) + arch::kConvolutionCallCycles +
         t.groups * (13 + first + (t.input_panels - 1) * later);
}

// --- The vertex that walks over the window (planner.md 3) ---

// The slowest worker's: pixels are dealt evenly, and each piece of a row costs.
uint64_t WorkerCyclesNx1(const PlannedConvolution& c, const TileShape& t) {
  const uint64_t width = CeilDiv(t.field[1], c.spread[1]),
                 pixels = t.batch * CeilDiv(t.field[0], c.spread[0]) * width;
  const uint64_t of_pixel = c.half ? 4 : 8;
  uint64_t slowest = 0;
  for (uint64_t worker = 0; worker < kWorkers; ++worker) {
    const uint64_t begin = pixels * worker / kWorkers, end = pixels * (worker + 1) / kWorkers;
    if (begin == end) continue;
    const uint64_t pieces = (end - 1) / width - begin / width + 1;
    slowest = std::max(slowest, 16 * pieces + of_pixel * (end - begin));
  }
  return 18 + slowest;
}

uint64_t CyclesNx1(const PlannedConvolution& c, const Partition& p, const TileShape& t) {
  const auto [passes, load] = UnitsOf(c);
  const uint64_t set_up = p.rows_at_once == 1 ? 15 : p.rows_at_once == 2 ? 46 : 60;
  const uint64_t element = load + set_up + 3 + kWorkers * WorkerCyclesNx1(c, t);
  const uint64_t window =
      CeilDiv(t.kernel[0], p.rows_at_once) * (14 + t.kernel[1] * (12 + passes * element));
  const uint64_t zeroing = t.partials / 4 + 120 + 20 * t.output_panels;
  return zeroing + t.groups * (239 + 23 * t.output_panels +
                               t.input_panels * (14 + t.output_panels * (14 + window)));
}

// --- Around the vertex ---

uint64_t AddCycles(uint64_t outputs, uint64_t depth, bool half) {
  const uint64_t vector = half ? 8 : 4;
  const uint64_t loops = CeilDiv(CeilDiv(outputs, vector), kWorkers);
  return outputs % vector == 0 ? 33 + 6 * (20 + loops * (2 * (depth - 1) + 9))
                               : 6 * (32 + loops * (3 * depth + 8));
}

// The least number whose power is at least `n`.
uint64_t RootOf(uint64_t n, int power) {
  for (uint64_t root = 1;; ++root) {
    uint64_t product = 1;
    for (int i = 0; i < power; ++i) product *= root;
    if (product >= n) return root;
  }
}

std::vector<ReduceStage> ReductionOf(uint64_t partials, uint64_t depth, bool half) {
  std::vector<ReduceStage> stages;
  if (depth <= 1) return stages;
  for (int left = depth < 16 ? 1 : depth < 125 ? 2 : 3; left > 0; --left) {
    const uint64_t of_stage = RootOf(depth, left), outputs = CeilDiv(partials, of_stage);
    stages.push_back({partials * (half ? 2 : 4), AddCycles(outputs, of_stage, half)});
    partials = outputs;
    depth = CeilDiv(depth, of_stage);
  }
  return stages;
}

PartitionCost::Rearrangement RearrangementOf(uint64_t bytes) {
  const uint64_t of_tile = CeilDiv(bytes, arch::kTilesPerIpu);
  return {of_tile * 5 / 8, of_tile};
}

uint64_t PhaseCycles(uint64_t bytes) {
  return arch::kInternalSyncCycles + arch::kExchangeFixedCycles + arch::kControlCyclesPerStep +
         CeilDiv(bytes, static_cast<uint64_t>(arch::kExchangeBytesPerCycle));
}

}  // namespace

uint64_t PartitionCost::total_cycles() const {
  uint64_t once = 0, each = PhaseCycles(operand_bytes) + vertex_cycles;
  for (const Rearrangement& copy : rearrangements) once += copy.cycles + PhaseCycles(copy.bytes);
  for (const ReduceStage& stage : reduction) each += stage.cycles + PhaseCycles(stage.bytes);
  return once + serial * each;
}

uint64_t AmpVertexCycles(const PlannedConvolution& c, const Partition& p) {
  const TileShape t = ShapeOf(c, p);
  return p.vertex == AmpVertex::k1x1 ? Cycles1x1(c, t) : CyclesNx1(c, p, t);
}

PartitionCost CostOf(const PlannedConvolution& c, const Partition& p) {
  const TileShape t = ShapeOf(c, p);
  const uint64_t element = c.half ? 2 : 4, partial = c.half_partials ? 2 : 4;
  const uint64_t image = t.image * element, weights = t.weights * element;
  PartitionCost cost{.vertex_cycles = AmpVertexCycles(c, p), .serial = p.serial_outputs};
  // Each of the tiles that need the same weights has a share to begin with.
  cost.operand_bytes = image + weights - weights / (p.batch * Product(p.field));
  cost.reduction = ReductionOf(t.partials, p.inputs * Product(p.kernel), c.half_partials);
  const uint64_t reduced = cost.reduction.empty() ? 0 : cost.reduction.front().bytes;
  cost.temporary_bytes = image + weights + t.partials * partial + reduced;
  const bool pads = c.inputs % p.channels_at_once != 0;
  if (c.rearranges_image || pads) {
    cost.rearrangements.push_back(RearrangementOf(element * c.groups * c.batch * c.inputs *
                                                  Product(ImageUnder(c, c.field, c.kernel))));
  }
  if (c.rearranges_weights || pads) {
    cost.rearrangements.push_back(
        RearrangementOf(element * c.groups * c.inputs * c.outputs * Product(c.kernel)));
  }
  return cost;
}

std::vector<PlanStep> StepsOf(const PartitionCost& cost, const Partition& partition) {
  const auto compute = [](Vertex vertex, uint64_t tiles, uint64_t cycles) {
    return ComputeSet{
        {{.tiles = static_cast<uint32_t>(tiles), .vertex = vertex, .supervisor_cycles = cycles}}};
  };
  std::vector<PlanStep> steps;
  for (const auto& copy : cost.rearrangements) {
    steps.push_back({compute(Vertex::kElementwise, arch::kTilesPerIpu, copy.cycles)});
    steps.push_back(TileExchangeStep(copy.bytes));
  }
  std::vector<PlanStep> parts = {TileExchangeStep(cost.operand_bytes),
                                 {compute(Vertex::kAmp, partition.tiles(), cost.vertex_cycles)}};
  for (const ReduceStage& stage : cost.reduction) {
    parts.push_back(TileExchangeStep(stage.bytes));
    parts.push_back({compute(Vertex::kReduction, partition.tiles(), stage.cycles)});
  }
  for (PlanStep& step : parts) step.times = cost.serial;
  steps.insert(steps.end(), parts.begin(), parts.end());
  return steps;
}

}  // namespace vpod::model
