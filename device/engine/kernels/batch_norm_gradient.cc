// The gradient of batch norm, of what was added to it and of its activation.
#include <cmath>
#include <memory>

#include "device/engine/kernels/batch_norm_loops.h"
#include "device/engine/kernels/batch_norm_rows.h"
#include "device/engine/kernels/vector_math.h"
#include "device/program/unhandled.h"

namespace vpod::engine {
namespace {

using program::v1::UnaryOperator;

// `y`: what the activation took, or, unless it is SILU, gave.
void ActivationGradient(UnaryOperator activation, const float* y, const float* dy, float* gradient,
                        size_t n) {
  switch (activation) {
    case program::v1::RELU:
      return ReluGradient(y, dy, gradient, n);
    case program::v1::RELU6:
      return Relu6Gradient(y, dy, gradient, n);
    case program::v1::SILU:
      return SiluGradient(y, dy, gradient, n);
    default:
      program::Unhandled("activation", activation);
  }
}

// y, for its activation's gradient, from x.
struct RecomputedY {
  Operand scale, offset, mean, variance;
  Vectors factors;  // in scratch
  size_t block = 0;
  float epsilon = 0;
  bool half = false;

  // For channels [channel, channel + n), before the blocks of a chunk.
  void Begin(const Workspace& at, size_t channel, size_t n) const {
    float* factor = factors.Of(at.scratch, 0);
    for (size_t c = channel; c < channel + n; ++c)
      *factor++ = Factor(scale.As<float>(at)[c], variance.As<float>(at)[c], epsilon);
  }
  // Computes the gradient of the activation's input from that of its output.
  void Gradient(const Workspace& at, UnaryOperator activation, const float* x, const float* dy,
                float* gradient, size_t rows, size_t channel, size_t n) const {
    const float *means = mean.As<float>(at) + channel, *factor = factors.Of(at.scratch, 0),
                *offsets = offset.As<float>(at) + channel;
    if (!half && activation != program::v1::SILU) {
      return NormalizedReluGradient(activation == program::v1::RELU6, x, means, factor, offsets, dy,
                                    gradient, rows, n);
    }
    auto* y = reinterpret_cast<float*>(at.scratch + block);
    Normalize(x, means, factor, offsets, y, rows, n);
    if (half) RoundToFloat16(y, rows * n);
    ActivationGradient(activation, y, dy, gradient, rows * n);
  }
};

// The gradient of y, as it is given or after another was added and an activation passed.
struct GradientOfY {
  FloatBlock first, second, activated, kept;
  RecomputedY y;
  size_t block = 0;  // of scratch
  bool half = false, add = false, keep = false, recompute = false;
  UnaryOperator activation = program::v1::UNARY_OPERATOR_UNSPECIFIED;

  void Begin(const Workspace& at, size_t channel, size_t n) const {
    if (recompute) y.Begin(at, channel, n);
  }
  // The gradient of some rows, which begin at element `begin`; `x` holds the same rows. They have n
  // channels, from `channel` on.
  const float* Read(const Workspace& at, const float* x, size_t begin, size_t rows, size_t channel,
                    size_t n) const {
    const size_t elements = rows * n;
    const float* dy = first.Read(at, begin, elements);
    const bool activates = activation != program::v1::UNARY_OPERATOR_UNSPECIFIED;
    if (!add && !activates) return dy;
    auto* result = reinterpret_cast<float*>(at.scratch + block);
    if (add) {
      Sum(dy, second.Read(at, begin, elements), result, elements);
      if (half) RoundToFloat16(result, elements);
      dy = result;
    }
    if (recompute) {
      y.Gradient(at, activation, x, dy, result, rows, channel, n);
    } else if (activates) {
      ActivationGradient(activation, activated.Read(at, begin, elements), dy, result, elements);
    }
    if (half && activation == program::v1::SILU) RoundToFloat16(result, elements);
    return result;
  }
  void Keep(const Workspace& at, const float* dy, size_t begin, size_t n) const {
    std::copy_n(dy, n, kept.Write(at, begin));
    kept.Store(at, begin, n);
  }
  const float* ReadKept(const Workspace& at, const float* x, size_t begin, size_t rows,
                        size_t channel, size_t n) const {
    return keep ? kept.Read(at, begin, rows * n) : Read(at, x, begin, rows, channel, n);
  }
};

GradientOfY ResolveGradient(const program::v1::Ipu& ipu, const Instruction& instruction,
                            const RowsOfChannels& rows, MemoryPlan& scratch) {
  const auto& op = instruction.batch_norm_gradient();
  const size_t bytes = rows.block_elements() * sizeof(float);
  const auto block = [&](uint32_t tensor) {
    return FloatBlock(Resolve(ipu, tensor), rows.block_elements(), scratch);
  };
  const auto operand = [&](int input) { return Resolve(ipu, instruction.inputs(input)); };
  const bool half = operand(1).type.type == program::v1::FLOAT16;
  GradientOfY dy{.first = block(instruction.inputs(1)),
                 .block = scratch.Add(bytes),
                 .half = half,
                 .add = op.add(),
                 .keep = op.keep(),
                 .recompute = op.recompute(),
                 .activation = op.activation()};
  if (op.add()) dy.second = block(instruction.inputs(5));
  if (op.keep()) dy.kept = block(instruction.outputs(3));
  const int last = instruction.inputs_size() - 1;
  if (op.recompute()) {
    dy.y = {.scale = operand(2),
            .offset = operand(last),
            .mean = operand(3),
            .variance = operand(4),
            .factors = {scratch.Add(rows.blocks.per_chunk * sizeof(float)), 0},
            .block = scratch.Add(bytes),
            .epsilon = op.epsilon(),
            .half = half};
  } else if (op.activation() != program::v1::UNARY_OPERATOR_UNSPECIFIED) {
    dy.activated = block(instruction.inputs(last));
  }
  return dy;
}

}  // namespace

absl::StatusOr<Kernel> PrepareBatchNormGradient(const program::v1::Ipu& ipu,
                                                const Instruction& instruction) {
  const Operand x = Resolve(ipu, instruction.inputs(0)),
                scale = Resolve(ipu, instruction.inputs(2)),
                mean = Resolve(ipu, instruction.inputs(3)),
                variance = Resolve(ipu, instruction.inputs(4)),
                dscale = ResolveOutput(ipu, instruction, 1),
                doffset = ResolveOutput(ipu, instruction, 2);
  const double epsilon = instruction.batch_norm_gradient().epsilon();
  const RowsOfChannels rows(x);
  const Sums sums(rows);
  const size_t block = rows.block_elements();
  MemoryPlan scratch;
  const FloatBlock x_block(x, block, scratch),
      dx_block(ResolveOutput(ipu, instruction, 0), block, scratch);
  const auto dy =
      std::make_shared<const GradientOfY>(ResolveGradient(ipu, instruction, rows, scratch));
  // Left by the second phase for the third: factor, mean of dy, slope.
  MemoryPlan shared;
  shared.Add(sums.bytes());
  const Vectors vectors{shared.Add(3 * rows.channels * sizeof(float)), rows.channels};
  Kernel kernel;
  kernel.shared_bytes = shared.bytes();
  kernel.scratch_bytes = scratch.bytes();
  kernel.phases.push_back(
      {.chunks = rows.num_chunks(),
       .run =
           [=](const Workspace& at, size_t chunk) {
             const size_t channel = rows.FirstChannel(chunk), n = rows.Channels(chunk);
             double *sum = sums.Of(at, rows.OfRows(chunk), 0, channel),
                    *product = sums.Of(at, rows.OfRows(chunk), 1, channel);
             std::fill_n(sum, n, 0.0);
             std::fill_n(product, n, 0.0);
             dy->Begin(at, channel, n);
             rows.ForBlocks(chunk, [&](size_t first, size_t count) {
               const float* values = x_block.Read(at, first, count * n);
               const float* gradient = dy->Read(at, values, first, count, channel, n);
               AddGradients(values, gradient, mean.As<float>(at) + channel, count, n, sum, product);
               if (dy->keep) dy->Keep(at, gradient, first, count * n);
             });
             return absl::OkStatus();
           },
       .operations = rows.operations()});
  const Chunking totals = sums.totals();
  kernel.phases.push_back(
      {totals.chunks(), [=](const Workspace& at, size_t chunk) {
         const auto count = static_cast<double>(rows.rows);
         for (size_t c = totals.begin(chunk); c < totals.end(chunk); ++c) {
           const double inverse = 1 / std::sqrt(variance.As<float>(at)[c] + epsilon);
           const double sum = sums.Total(at, 0, c), product = sums.Total(at, 1, c);
           doffset.As<float>(at)[c] = static_cast<float>(sum);
           dscale.As<float>(at)[c] = static_cast<float>(product * inverse);
           vectors.Of(at.shared, 0)[c] = static_cast<float>(scale.As<float>(at)[c] * inverse);
           vectors.Of(at.shared, 1)[c] = static_cast<float>(sum / count);
           vectors.Of(at.shared, 2)[c] = static_cast<float>(product * inverse * inverse / count);
         }
         return absl::OkStatus();
       }});
  kernel.phases.push_back(
      {.chunks = rows.num_chunks(),
       .run =
           [=](const Workspace& at, size_t chunk) {
             const size_t channel = rows.FirstChannel(chunk), n = rows.Channels(chunk);
             dy->Begin(at, channel, n);
             rows.ForBlocks(chunk, [&](size_t first, size_t count) {
               const float* values = x_block.Read(at, first, count * n);
               InputGradient(values, dy->ReadKept(at, values, first, count, channel, n),
                             mean.As<float>(at) + channel, vectors.Of(at.shared, 0) + channel,
                             vectors.Of(at.shared, 1) + channel, vectors.Of(at.shared, 2) + channel,
                             dx_block.Write(at, first), count, n);
               dx_block.Store(at, first, count * n);
             });
             return absl::OkStatus();
           },
       .operations = rows.operations()});
  return kernel;
}

}  // namespace vpod::engine
