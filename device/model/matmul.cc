#include <algorithm>

#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Rule 1 of 7.2 for one worker, output zeroing included.
uint64_t WorkerCycles(uint64_t rows, bool half) {
  uint64_t cycles = 0;
  if (rows == 0) {
    cycles = 21;
  } else if (rows == 1) {
    cycles = 32;
  } else if (rows == 2) {
    cycles = 41;
  } else {
    cycles = half ? 37 + (rows - 3) * 4 : 46 + (rows - 3) * 8;
  }
  return half ? cycles - 7 : cycles;  // state retention saves 7, float16 only
}

// Overhead of a single panel by rule 1 of 7.2: 809 cycles for 128 rows are 636 + 173.
constexpr uint64_t kPanelOverheadCycles = 173;

}  // namespace

TileWork AmpPanel(uint64_t rows, program::v1::DataType type) {
  const bool half = type == program::v1::FLOAT16;
  const uint64_t workers = arch::kWorkersPerTile;
  const uint64_t most = WorkerCycles(CeilDiv(rows, workers), half);
  const uint64_t least = WorkerCycles(rows / workers, half);
  const uint64_t worker = std::max(most, least);
  const uint64_t inner = std::max(workers * worker, workers * std::min(most, least) + 14);
  return {
      .tiles = 1,
      .vertex = Vertex::kAmp,
      .supervisor_cycles = inner - workers * worker + kPanelOverheadCycles + arch::kAmpCallCycles,
      .worker_cycles = worker};
}

Cycles AmpPanelCycles(uint64_t rows, program::v1::DataType type) {
  const TileWork panel = AmpPanel(rows, type);
  return Cycles(panel.supervisor_cycles + arch::kWorkersPerTile * panel.worker_cycles);
}

std::vector<PlanStep> MatMulSteps(uint64_t m, uint64_t k, uint64_t n, program::v1::DataType type,
                                  uint64_t products) {
  const uint64_t depth = type == program::v1::FLOAT16 ? 16 : 8;
  const uint64_t tiles = arch::kTilesPerIpu;
  const uint64_t k_panels =
      CeilDiv(std::max<uint64_t>(k, 1), depth);  // sums of nothing are written
  const uint64_t panels = products * k_panels * CeilDiv(n, 16);
  // Panels are dealt to tiles; with tiles to spare, rows are split too.
  const uint64_t row_groups = std::clamp<uint64_t>(tiles / panels, 1, m);
  const uint64_t rows = CeilDiv(m, row_groups);
  const uint64_t calls = panels * row_groups;
  const uint64_t calls_per_tile = CeilDiv(calls, tiles);
  const uint64_t element = program::SizeOf(type);

  TileWork work = AmpPanel(rows, type);
  work.tiles = TilesFor(calls);
  work.calls = calls_per_tile;
  TilePlan plan;
  plan.Add(TileExchangeStep(calls_per_tile * (rows * depth + depth * 16) * element));
  plan.Add({ComputeSet{{work}}});
  const uint64_t results = products * m * n;
  if (k_panels > 1) plan.Add(ReduceSteps(results * k_panels, results, program::v1::FLOAT32));
  return plan.steps;
}

std::vector<PlanDef> MatMulPlans() {
  return {{Instruction::kMatMul, [](const Instruction& instruction, const PlanContext& context) {
             const program::v1::MatMul& op = instruction.mat_mul();
             const program::TensorType a = context.Type(instruction.inputs(0)),
                                       output = context.Type(instruction.outputs(0));
             const auto m = static_cast<uint64_t>(output.dims[output.dims.size() - 2]),
                        n = static_cast<uint64_t>(output.dims.back()),
                        k = static_cast<uint64_t>(
                            a.dims[a.dims.size() - (op.transpose_a() ? 2 : 1)]);
             const uint64_t products =
                 static_cast<uint64_t>(output.elements()) / std::max<uint64_t>(1, m * n);
             return TilePlan{.steps = MatMulSteps(m, k, n, a.type, products),
                             .bytes = {{.vertex_code = arch::kAmpVertexCodeBytes}}};
           }}};
}

}  // namespace vpod::model
