#include <cmath>
#include <memory>

#include "device/engine/kernels/batch_norm_loops.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/vector_math.h"
#include "device/program/unhandled.h"

namespace vpod::engine {
namespace {

// Rows are pixels, whose channels lie side by side. Blocks of rows stay in the
// first-level cache while the steps of an op go over them.
constexpr size_t kElementsOfABlock = 4096;

// --- Rows of a tensor, and what there is one of for each channel ---

struct RowsOfChannels {
  size_t rows, channels, of_block;
  Chunking chunks;  // of rows
  Chunking blocks;  // of channels; several if rows are long

  explicit RowsOfChannels(const Operand& x) {
    constexpr size_t kMostChannels = 8192, kWiderChunks = 8;
    channels = static_cast<size_t>(x.type.dims[1]);
    rows = x.elements() / channels;
    const bool is_long = channels > kMostChannels;
    blocks = {channels, is_long ? kMostChannels : channels};
    // Sums of long rows are as long: there are fewer of them.
    chunks = ChunkItems(rows, is_long ? kMostChannels / kWiderChunks : channels);
    of_block = is_long ? 1 : std::max<size_t>(1, kElementsOfABlock / channels);
  }
  size_t block_elements() const { return of_block * blocks.per_chunk; }
  size_t num_chunks() const { return chunks.chunks() * blocks.chunks(); }
  double operations() const { return static_cast<double>(chunks.per_chunk * blocks.per_chunk); }
  // The place of a chunk: which of `chunks`, its first channel and the number of its channels.
  size_t OfRows(size_t chunk) const { return chunk / blocks.chunks(); }
  size_t FirstChannel(size_t chunk) const { return blocks.begin(chunk % blocks.chunks()); }
  size_t Channels(size_t chunk) const { return blocks.size(chunk % blocks.chunks()); }

  // Calls `visit(first element, rows)` for blocks of rows, from a channel on.
  template <class Visit>
  void ForBlocks(size_t row, size_t end, size_t channel, const Visit& visit) const {
    for (; row < end; row += of_block)
      visit(row * channels + channel, std::min(of_block, end - row));
  }
  // For the blocks of a chunk, which have its channels.
  template <class Visit>
  void ForBlocks(size_t chunk, const Visit& visit) const {
    ForBlocks(chunks.begin(OfRows(chunk)), chunks.end(OfRows(chunk)), FirstChannel(chunk), visit);
  }
};

// Chunks leave two sums for each channel in shared memory: [chunk of rows][sum][channel] of
// float64.
class Sums {
 public:
  explicit Sums(const RowsOfChannels& rows)
      : chunks_(rows.chunks.chunks()), channels_(rows.channels) {}

  size_t bytes() const { return chunks_ * 2 * channels_ * sizeof(double); }
  // From a channel on.
  double* Of(const Workspace& at, size_t chunk, size_t sum, size_t channel) const {
    return reinterpret_cast<double*>(at.shared) + (chunk * 2 + sum) * channels_ + channel;
  }
  // The sum of all chunks, in order.
  double Total(const Workspace& at, size_t sum, size_t channel) const {
    double total = 0;
    for (size_t chunk = 0; chunk < chunks_; ++chunk) total += *Of(at, chunk, sum, channel);
    return total;
  }
  // Channels whose totals one chunk takes.
  Chunking totals() const {
    constexpr size_t kOperations = size_t{1} << 20;
    return {channels_, std::clamp<size_t>(kOperations / chunks_, 1, channels_)};
  }

 private:
  size_t chunks_, channels_;
};

// Vectors of a float32 for each channel.
struct Vectors {
  size_t at = 0, channels = 0;
  float* Of(std::byte* memory, size_t index) const {
    return reinterpret_cast<float*>(memory + at) + index * channels;
  }
};

float Factor(float scale, float variance, float epsilon) {
  return static_cast<float>(scale / std::sqrt(static_cast<double>(variance) + epsilon));
}

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

// --- Gradient ---

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
  const float* Read(const Workspace& at, const float* x, size_t rows, size_t channel,
                    size_t n) const {
    auto* y = reinterpret_cast<float*>(at.scratch + block);
    Normalize(x, mean.As<float>(at) + channel, factors.Of(at.scratch, 0),
              offset.As<float>(at) + channel, y, rows, n);
    if (half) RoundToFloat16(y, rows * n);
    return y;
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
  // Of rows that begin at an element, n channels from one on; `x` is theirs.
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
    if (activates) {
      const float* turns =
          recompute ? y.Read(at, x, rows, channel, n) : activated.Read(at, begin, elements);
      ActivationGradient(activation, turns, dy, result, elements);
      if (half && activation == program::v1::SILU) RoundToFloat16(result, elements);
    }
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

}  // namespace

std::vector<KernelDef> BatchNormKernels() {
  return {{Instruction::kBatchNorm, PrepareBatchNorm},
          {Instruction::kBatchNormInference, PrepareBatchNormInference},
          {Instruction::kBatchNormGradient, PrepareBatchNormGradient}};
}

}  // namespace vpod::engine
