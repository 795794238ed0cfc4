// The vertices of convolutions (spec/hardware.md 7.2, spec/planner.md 3).
#include <algorithm>

#include "device/model/even.h"
#include "device/model/tile_shape.h"

namespace vpod::model {
namespace {

constexpr uint64_t kWorkers = arch::kWorkersPerTile;

// How often the convolution units go over the outputs of a panel, and the cycles to load their
// weights. Float32 partial results of float16 leave half of the units (planner.md 1).
struct Units {
  uint64_t passes, load;
};
Units UnitsOf(const PlannedConvolution& c, const Partition& p) {
  constexpr uint64_t kBytesOfUnit = 32;
  const uint64_t units = c.half && !c.half_partials ? p.outputs_at_once / 2 : p.outputs_at_once;
  return {p.outputs_at_once / units, units * kBytesOfUnit / arch::kWeightBytesPerCycle};
}

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

uint64_t Cycles1x1(const PlannedConvolution& c, const Partition& p, const TileShape& t) {
  const uint64_t rows = t.batch * Product(t.field);
  const auto inner = [&](bool zeroes) {
    const uint64_t a = WorkerCycles1x1(CeilDiv(rows, kWorkers), c.half, zeroes),
                   b = WorkerCycles1x1(rows / kWorkers, c.half, zeroes);
    return std::max(kWorkers * std::max(a, b), kWorkers * std::min(a, b) + 14);
  };
  const auto [passes, load] = UnitsOf(c, p);
  const uint64_t first = 11 + t.output_blocks * (18 + passes * (7 + load + inner(true))),
                 later = 15 + t.output_blocks * (19 + passes * (6 + load + inner(false)));
  return 50 + 6 * (7 + 3 * (t.input_blocks * t.group_blocks - 1)) + arch::kConvolutionCallCycles +
         t.group_blocks * (13 + first + (t.input_blocks - 1) * later);
}

// Worker cycles for a piece of a row, and for each of its pixels.
struct RowCycles {
  uint64_t piece, pixel;
};

// The slowest worker's, who get the pixels of the field evenly.
uint64_t WorkerCycles(const PlannedConvolution& c, const TileShape& t, RowCycles row) {
  const uint64_t width = CeilDiv(t.field[1], c.spread[1]),
                 pixels = t.batch * CeilDiv(t.field[0], c.spread[0]) * width;
  uint64_t slowest = 0;
  for (uint64_t worker = 0; worker < kWorkers; ++worker) {
    const uint64_t begin = pixels * worker / kWorkers, end = pixels * (worker + 1) / kWorkers;
    if (begin == end) continue;
    const uint64_t pieces = (end - 1) / width - begin / width + 1;
    slowest = std::max(slowest, row.piece * pieces + row.pixel * (end - begin));
  }
  return slowest;
}

// Partial results are set to zero first.
uint64_t ZeroCycles(const TileShape& t) { return t.partials / 4 + 120 + 20 * t.output_blocks; }

uint64_t CyclesNx1(const PlannedConvolution& c, const Partition& p, const TileShape& t) {
  const auto [passes, load] = UnitsOf(c, p);
  const uint64_t set_up = p.rows_at_once == 1 ? 15 : p.rows_at_once == 2 ? 46 : 60;
  const uint64_t worker = 18 + WorkerCycles(c, t, {16, c.half ? 4u : 8u});
  const uint64_t element = load + set_up + 3 + kWorkers * worker;
  const uint64_t window =
      CeilDiv(t.kernel[0], p.rows_at_once) * (14 + t.kernel[1] * (12 + passes * element));
  return ZeroCycles(t) + t.group_blocks * (239 + 23 * t.output_blocks +
                                           t.input_blocks * (14 + t.output_blocks * (14 + window)));
}

uint64_t SlicCycles(const PlannedConvolution& c, const TileShape& t) {
  constexpr uint64_t kColumns = 4, kLoadCycles = 34;
  const uint64_t passes = c.half_partials ? 1 : 2;
  const uint64_t window = t.kernel[0] * CeilDiv(t.kernel[1], kColumns) *
                          (kLoadCycles + passes * kWorkers * WorkerCycles(c, t, {20, 1}));
  return ZeroCycles(t) + 132 + t.group_blocks * t.input_blocks * t.output_blocks * (24 + window);
}

// Each worker has partial results of its own.
uint64_t VmacCycles(const PlannedConvolution& c, const Partition& p, const TileShape& t) {
  const RowCycles row = p.groups_at_once == 4 ? RowCycles{11, 2} : RowCycles{22, 3};
  return ZeroCycles(t) + 132 +
         t.group_blocks * (24 + Product(t.kernel) * kWorkers * WorkerCycles(c, t, row)) +
         AddCycles(t.partials, kWorkers, c.half_partials);
}

uint64_t HmacCycles(const PlannedConvolution& c, const TileShape& t) {
  const uint64_t vectors = CeilDiv(t.input_blocks * (c.half ? 2 : 4), 8);
  const uint64_t outputs = t.group_blocks * t.output_blocks * WorkerCycles(c, t, {0, 1});
  return kWorkers * (65 + outputs * Product(t.kernel) * vectors);
}

}  // namespace

uint64_t VertexCycles(const PlannedConvolution& c, const Partition& p) {
  const TileShape t = ShapeOf(c, p);
  switch (p.vertex) {
    case ConvolutionVertex::kAmp1x1:
      return Cycles1x1(c, p, t);
    case ConvolutionVertex::kAmpNx1:
      return CyclesNx1(c, p, t);
    case ConvolutionVertex::kSlic:
      return SlicCycles(c, t);
    case ConvolutionVertex::kVmac:
      return VmacCycles(c, p, t);
    default:
      return HmacCycles(c, t);
  }
}

}  // namespace vpod::model
