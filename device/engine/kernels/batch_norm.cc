#include <memory>

#include "device/engine/kernels/batch_norm_loops.h"
#include "device/engine/kernels/batch_norm_rows.h"
#include "device/engine/kernels/vector_math.h"

namespace vpod::engine {
namespace {

using program::v1::UnaryOperator;

void Activate(UnaryOperator activation, float* values, size_t n) {
  switch (activation) {
    case program::v1::RELU:
      return Relu(values, n);
    case program::v1::RELU6:
      return Relu6(values, n);
    case program::v1::SILU:
      return Silu(values, values, n);
    default:
      return;
  }
}

// --- y, with what is added to it, and its activation ---

struct Normalization {
  RowsOfChannels rows;
  Operand scale, offset, mean, variance;
  FloatBlock x, y, addend;
  Vectors factors;  // in scratch
  float epsilon;
  bool half, add;
  UnaryOperator activation;

  // Rows [row, end), n channels from one on.
  void Run(const Workspace& at, size_t row, size_t end, size_t begin, size_t n) const {
    float* factor = factors.Of(at.scratch, 0);
    for (size_t c = 0; c < n; ++c) {
      factor[c] =
          Factor(scale.As<float>(at)[begin + c], variance.As<float>(at)[begin + c], epsilon);
    }
    rows.ForBlocks(row, end, begin, [&](size_t first, size_t count) {
      const size_t elements = count * n;
      float* out = y.Write(at, first);
      Normalize(x.Read(at, first, elements), mean.As<float>(at) + begin, factor,
                offset.As<float>(at) + begin, out, count, n);
      if (add) {
        if (half) RoundToFloat16(out, elements);
        AddTo(out, addend.Read(at, first, elements), elements);
      }
      // Before the others it changes nothing.
      if (half && activation == program::v1::SILU) RoundToFloat16(out, elements);
      Activate(activation, out, elements);
      y.Store(at, first, elements);
    });
  }
  absl::Status Run(const Workspace& at, size_t chunk) const {
    const size_t of_rows = rows.OfRows(chunk);
    Run(at, rows.chunks.begin(of_rows), rows.chunks.end(of_rows), rows.FirstChannel(chunk),
        rows.Channels(chunk));
    return absl::OkStatus();
  }
};

// Inputs are x, scale, offset and, last, the addend.
template <class Op>
std::shared_ptr<const Normalization> PrepareNormalization(const program::v1::Ipu& ipu,
                                                          const Instruction& instruction,
                                                          const Op& op, const Operand& mean,
                                                          const Operand& variance,
                                                          MemoryPlan& scratch) {
  const Operand x = Resolve(ipu, instruction.inputs(0));
  const RowsOfChannels rows(x);
  const size_t block = rows.block_elements();
  auto pass = std::make_shared<Normalization>(
      Normalization{.rows = rows,
                    .scale = Resolve(ipu, instruction.inputs(1)),
                    .offset = Resolve(ipu, instruction.inputs(2)),
                    .mean = mean,
                    .variance = variance,
                    .x = FloatBlock(x, block, scratch),
                    .y = FloatBlock(ResolveOutput(ipu, instruction, 0), block, scratch),
                    .factors = {scratch.Add(rows.blocks.per_chunk * sizeof(float)), 0},
                    .epsilon = op.epsilon(),
                    .half = x.type.type == program::v1::FLOAT16,
                    .add = op.add(),
                    .activation = op.activation()});
  if (op.add()) {
    const uint32_t addend = instruction.inputs(instruction.inputs_size() - 1);
    pass->addend = FloatBlock(Resolve(ipu, addend), block, scratch);
  }
  return pass;
}

Phase NormalizePhase(const std::shared_ptr<const Normalization>& pass) {
  return {.chunks = pass->rows.num_chunks(),
          .run = [pass](const Workspace& at, size_t chunk) { return pass->Run(at, chunk); },
          .operations = pass->rows.operations()};
}

absl::StatusOr<Kernel> PrepareBatchNorm(const program::v1::Ipu& ipu,
                                        const Instruction& instruction) {
  const Operand x = Resolve(ipu, instruction.inputs(0)), mean = ResolveOutput(ipu, instruction, 1),
                variance = ResolveOutput(ipu, instruction, 2);
  const RowsOfChannels rows(x);
  const Sums sums(rows);
  MemoryPlan scratch;
  const FloatBlock in(x, rows.block_elements(), scratch);
  Kernel kernel;
  kernel.phases.push_back({.chunks = rows.num_chunks(),
                           .run =
                               [=](const Workspace& at, size_t chunk) {
                                 const size_t channel = rows.FirstChannel(chunk),
                                              n = rows.Channels(chunk);
                                 double *sum = sums.Of(at, rows.OfRows(chunk), 0, channel),
                                        *square = sums.Of(at, rows.OfRows(chunk), 1, channel);
                                 std::fill_n(sum, n, 0.0);
                                 std::fill_n(square, n, 0.0);
                                 rows.ForBlocks(chunk, [&](size_t first, size_t count) {
                                   AddMoments(in.Read(at, first, count * n), count, n, sum, square);
                                 });
                                 return absl::OkStatus();
                               },
                           .operations = rows.operations()});
  const Chunking totals = sums.totals();
  kernel.phases.push_back({totals.chunks(), [=](const Workspace& at, size_t chunk) {
                             const auto count = static_cast<double>(rows.rows);
                             for (size_t c = totals.begin(chunk); c < totals.end(chunk); ++c) {
                               const double average = sums.Total(at, 0, c) / count;
                               const double spread =
                                   sums.Total(at, 1, c) / count - average * average;
                               mean.As<float>(at)[c] = static_cast<float>(average);
                               // Rounding may leave less than nothing; not-a-number stays.
                               variance.As<float>(at)[c] =
                                   static_cast<float>(spread < 0 ? 0 : spread);
                             }
                             return absl::OkStatus();
                           }});
  kernel.phases.push_back(NormalizePhase(
      PrepareNormalization(ipu, instruction, instruction.batch_norm(), mean, variance, scratch)));
  kernel.shared_bytes = sums.bytes();
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

absl::StatusOr<Kernel> PrepareBatchNormInference(const program::v1::Ipu& ipu,
                                                 const Instruction& instruction) {
  MemoryPlan scratch;
  const auto pass = PrepareNormalization(ipu, instruction, instruction.batch_norm_inference(),
                                         Resolve(ipu, instruction.inputs(3)),
                                         Resolve(ipu, instruction.inputs(4)), scratch);
  Kernel kernel{.phases = {NormalizePhase(pass)}, .scratch_bytes = scratch.bytes()};
  if (pass->rows.blocks.chunks() == 1) {
    kernel.by_rows = [pass](const Workspace& at, size_t first, size_t count) {
      pass->Run(at, first, first + count, 0, pass->rows.channels);
    };
  }
  return kernel;
}

}  // namespace

std::vector<KernelDef> BatchNormKernels() {
  return {{Instruction::kBatchNorm, PrepareBatchNorm},
          {Instruction::kBatchNormInference, PrepareBatchNormInference},
          {Instruction::kBatchNormGradient, PrepareBatchNormGradient}};
}

}  // namespace vpod::engine
