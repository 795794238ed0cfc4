#include <cmath>
#include <memory>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

// Rows are pixels, whose channels lie side by side.

// The sums of a row, and of its squares, are added in float64, which loses nothing that float32
// inputs have.
VPOD_SIMD void AddMoments(const float* x, double* sums, double* squares, size_t n) {
  for (size_t c = 0; c < n; ++c) {
    const double value = x[c];
    sums[c] += value;
    squares[c] += value * value;
  }
}

// Sums of dy and of dy * (x - mean).
VPOD_SIMD void AddGradients(const float* x, const float* dy, const float* mean, double* sums,
                            double* products, size_t n) {
  for (size_t c = 0; c < n; ++c) {
    const double gradient = dy[c];
    sums[c] += gradient;
    products[c] += gradient * (static_cast<double>(x[c]) - mean[c]);
  }
}

// y = (x - mean) * factor + offset
VPOD_SIMD void NormalizeRow(const float* x, const float* mean, const float* factor,
                            const float* offset, float* y, size_t n) {
  for (size_t c = 0; c < n; ++c) y[c] = (x[c] - mean[c]) * factor[c] + offset[c];
}

// dx = factor * (dy - mean of dy - (x - mean) * slope)
VPOD_SIMD void GradientRow(const float* x, const float* dy, const float* mean, const float* factor,
                           const float* mean_dy, const float* slope, float* dx, size_t n) {
  for (size_t c = 0; c < n; ++c)
    dx[c] = factor[c] * (dy[c] - mean_dy[c] - (x[c] - mean[c]) * slope[c]);
}

struct Rows {
  size_t rows, channels;
  Chunking chunks;

  explicit Rows(const Operand& x) {
    channels = static_cast<size_t>(x.type.dims[1]);
    rows = x.elements() / channels;
    chunks = ChunkItems(rows, channels);
  }
};

// Chunks leave two sums for each channel in shared memory: [chunk][sum][channel] of float64.
class Sums {
 public:
  explicit Sums(const Rows& rows) : chunks_(rows.chunks.chunks()), channels_(rows.channels) {}

  size_t bytes() const { return chunks_ * 2 * channels_ * sizeof(double); }
  double* Of(const Workspace& at, size_t chunk, size_t sum) const {
    double* sums = reinterpret_cast<double*>(at.shared) + (chunk * 2 + sum) * channels_;
    return sums;
  }
  // Of all chunks, in order.
  double Total(const Workspace& at, size_t sum, size_t channel) const {
    double total = 0;
    for (size_t chunk = 0; chunk < chunks_; ++chunk) total += Of(at, chunk, sum)[channel];
    return total;
  }

 private:
  const size_t chunks_, channels_;
};

// Vectors of a float32 for each channel.
struct Vectors {
  size_t at = 0, channels = 0;
  float* Of(std::byte* memory, size_t index) const {
    return reinterpret_cast<float*>(memory + at) + index * channels;
  }
};

// Normalises rows by factors that `prepare(at, factor)` leaves in memory of the thread.
template <class Prepare>
Phase NormalizePhase(const Rows& rows, const FloatBlock& x, const FloatBlock& y,
                     const Operand& mean, const Operand& offset, const Vectors& factors,
                     Prepare prepare) {
  return {rows.chunks.chunks(), [=](const Workspace& at, size_t chunk) {
            const size_t n = rows.channels;
            float* factor = factors.Of(at.scratch, 0);
            prepare(at, factor);
            for (size_t row = rows.chunks.begin(chunk); row < rows.chunks.end(chunk); ++row) {
              NormalizeRow(x.Read(at, row * n, n), mean.As<float>(at), factor, offset.As<float>(at),
                           y.Write(at, row * n), n);
              y.Store(at, row * n, n);
            }
            return absl::OkStatus();
          }};
}

float Factor(float scale, float variance, float epsilon) {
  return static_cast<float>(scale / std::sqrt(static_cast<double>(variance) + epsilon));
}

absl::StatusOr<Kernel> PrepareBatchNorm(const program::v1::Ipu& ipu,
                                        const Instruction& instruction) {
  const Operand x = Resolve(ipu, instruction.inputs(0)),
                scale = Resolve(ipu, instruction.inputs(1)),
                offset = Resolve(ipu, instruction.inputs(2)),
                mean = Resolve(ipu, instruction.outputs(1)),
                variance = Resolve(ipu, instruction.outputs(2));
  const float epsilon = instruction.batch_norm().epsilon();
  const Rows rows(x);
  const Sums sums(rows);
  const size_t n = rows.channels;
  MemoryPlan scratch;
  const FloatBlock in(x, n, scratch), out(Resolve(ipu, instruction.outputs(0)), n, scratch);
  const Vectors factors{scratch.Add(n * sizeof(float)), n};
  Kernel kernel;
  kernel.shared_bytes = sums.bytes();
  kernel.scratch_bytes = scratch.bytes();
  kernel.phases.push_back({rows.chunks.chunks(), [=](const Workspace& at, size_t chunk) {
                             double *sum = sums.Of(at, chunk, 0), *square = sums.Of(at, chunk, 1);
                             std::fill_n(sum, 2 * n, 0.0);
                             for (size_t row = rows.chunks.begin(chunk);
                                  row < rows.chunks.end(chunk); ++row)
                               AddMoments(in.Read(at, row * n, n), sum, square, n);
                             return absl::OkStatus();
                           }});
  kernel.phases.push_back({1, [=](const Workspace& at, size_t) {
                             const auto count = static_cast<double>(rows.rows);
                             for (size_t c = 0; c < n; ++c) {
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
  kernel.phases.push_back(
      NormalizePhase(rows, in, out, mean, offset, factors, [=](const Workspace& at, float* factor) {
        for (size_t c = 0; c < n; ++c)
          factor[c] = Factor(scale.As<float>(at)[c], variance.As<float>(at)[c], epsilon);
      }));
  return kernel;
}

absl::StatusOr<Kernel> PrepareBatchNormInference(const program::v1::Ipu& ipu,
                                                 const Instruction& instruction) {
  const Operand x = Resolve(ipu, instruction.inputs(0)),
                scale = Resolve(ipu, instruction.inputs(1)),
                offset = Resolve(ipu, instruction.inputs(2)),
                mean = Resolve(ipu, instruction.inputs(3)),
                variance = Resolve(ipu, instruction.inputs(4));
  const float epsilon = instruction.batch_norm_inference().epsilon();
  const Rows rows(x);
  const size_t n = rows.channels;
  MemoryPlan scratch;
  const FloatBlock in(x, n, scratch), out(Resolve(ipu, instruction.outputs(0)), n, scratch);
  const Vectors factors{scratch.Add(n * sizeof(float)), n};
  Kernel kernel;
  kernel.scratch_bytes = scratch.bytes();
  kernel.phases = {
      NormalizePhase(rows, in, out, mean, offset, factors, [=](const Workspace& at, float* factor) {
        for (size_t c = 0; c < n; ++c)
          factor[c] = Factor(scale.As<float>(at)[c], variance.As<float>(at)[c], epsilon);
      })};
  return kernel;
}

absl::StatusOr<Kernel> PrepareBatchNormGradient(const program::v1::Ipu& ipu,
                                                const Instruction& instruction) {
  const Operand x = Resolve(ipu, instruction.inputs(0)), dy = Resolve(ipu, instruction.inputs(1)),
                scale = Resolve(ipu, instruction.inputs(2)),
                mean = Resolve(ipu, instruction.inputs(3)),
                variance = Resolve(ipu, instruction.inputs(4)),
                dscale = Resolve(ipu, instruction.outputs(1)),
                doffset = Resolve(ipu, instruction.outputs(2));
  const double epsilon = instruction.batch_norm_gradient().epsilon();
  const Rows rows(x);
  const Sums sums(rows);
  const size_t n = rows.channels;
  MemoryPlan scratch;
  const FloatBlock x_block(x, n, scratch), dy_block(dy, n, scratch),
      dx_block(Resolve(ipu, instruction.outputs(0)), n, scratch);
  // What the second phase leaves for the third: factor, mean of dy, slope.
  MemoryPlan shared;
  shared.Add(sums.bytes());
  const Vectors vectors{shared.Add(3 * n * sizeof(float)), n};
  Kernel kernel;
  kernel.shared_bytes = shared.bytes();
  kernel.scratch_bytes = scratch.bytes();
  kernel.phases.push_back(
      {rows.chunks.chunks(), [=](const Workspace& at, size_t chunk) {
         double *sum = sums.Of(at, chunk, 0), *product = sums.Of(at, chunk, 1);
         std::fill_n(sum, 2 * n, 0.0);
         for (size_t row = rows.chunks.begin(chunk); row < rows.chunks.end(chunk); ++row) {
           AddGradients(x_block.Read(at, row * n, n), dy_block.Read(at, row * n, n),
                        mean.As<float>(at), sum, product, n);
         }
         return absl::OkStatus();
       }});
  kernel.phases.push_back(
      {1, [=](const Workspace& at, size_t) {
         const auto count = static_cast<double>(rows.rows);
         for (size_t c = 0; c < n; ++c) {
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
      {rows.chunks.chunks(), [=](const Workspace& at, size_t chunk) {
         for (size_t row = rows.chunks.begin(chunk); row < rows.chunks.end(chunk); ++row) {
           GradientRow(x_block.Read(at, row * n, n), dy_block.Read(at, row * n, n),
                       mean.As<float>(at), vectors.Of(at.shared, 0), vectors.Of(at.shared, 1),
                       vectors.Of(at.shared, 2), dx_block.Write(at, row * n), n);
           dx_block.Store(at, row * n, n);
         }
         return absl::OkStatus();
       }});
  return kernel;
}

}  // namespace

std::vector<KernelDef> BatchNormKernels() {
  return {{Instruction::kBatchNorm, PrepareBatchNorm},
          {Instruction::kBatchNormInference, PrepareBatchNormInference},
          {Instruction::kBatchNormGradient, PrepareBatchNormGradient}};
}

}  // namespace vpod::engine
