#include <algorithm>
#include <limits>
#include <memory>

#include "device/base/simd.h"
#include "device/engine/kernels/row_parts.h"
#include "device/engine/kernels/row_sums.h"
#include "device/engine/kernels/vector_math.h"

namespace vpod::engine {
namespace {

constexpr size_t kLanes = 16;

// Not-a-number is passed over: it gets into the sum.
VPOD_SIMD float Largest(const float* x, size_t n) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  }
  for (size_t lane = 0; i + lane < n; ++lane)
    lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  return *std::max_element(lanes, lanes + kLanes);
}

VPOD_SIMD void Subtract(const float* x, float y, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = x[i] - y;
}
VPOD_SIMD void Scale(const float* x, float y, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * y;
}
VPOD_SIMD void Slope(const float* y, const float* dy, float sum, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = y[i] * (dy[i] - sum);
}
VPOD_SIMD void SlopeOfLogarithm(const float* p, const float* dy, float sum, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = dy[i] - p[i] * sum;
}

constexpr size_t kBlock = 1024;

double SumOfExponentials(const float* x, float largest, size_t n) {
  float block[kBlock];
  double sum = 0;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    Subtract(x + first, largest, block, count);
    Exp(block, block, count);
    sum += Sum(block, count);
  }
  return sum;
}

struct Softmax {
  RowParts cut;
  FloatBlock in, out;
  bool logarithm;

  struct Part {
    float largest;
    double sum;
  };

  // From a row's largest element and its sum; `y` may be `x`.
  void Finish(const float* x, float largest, double sum, float* y, size_t n) const {
    if (logarithm) {
      // Two roundings: the largest element may be large and the logarithm small.
      const auto log = static_cast<float>(Log(sum));
      Subtract(x, largest, y, n);
      return Subtract(y, log, y, n);
    }
    Subtract(x, largest, y, n);
    Exp(y, y, n);
    Scale(y, static_cast<float>(1 / sum), y, n);
  }

  absl::Status WholeRows(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const float* x = in.Read(at, piece.first, piece.count);
    float* y = out.Write(at, piece.first);
    for (size_t row = 0; row < piece.rows; ++row, x += cut.length, y += cut.length) {
      const float largest = Largest(x, cut.length);
      Finish(x, largest, SumOfExponentials(x, largest, cut.length), y, cut.length);
    }
    out.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }

  float LargestOf(const Workspace& at, size_t row) const {
    const Part* parts = cut.PartsOf<Part>(at, row);
    float largest = parts[0].largest;
    for (size_t i = 1; i < cut.parts.chunks(); ++i) largest = std::max(largest, parts[i].largest);
    return largest;
  }
  Part& PartAt(const Workspace& at, size_t chunk) const { return cut.PartsOf<Part>(at, 0)[chunk]; }

  absl::Status FindLargest(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    PartAt(at, chunk).largest = Largest(in.Read(at, piece.first, piece.count), piece.count);
    return absl::OkStatus();
  }
  absl::Status FindSum(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    PartAt(at, chunk).sum = SumOfExponentials(in.Read(at, piece.first, piece.count),
                                              LargestOf(at, piece.row), piece.count);
    return absl::OkStatus();
  }
  absl::Status FinishPart(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const Part* parts = cut.PartsOf<Part>(at, piece.row);
    double sum = 0;
    for (size_t i = 0; i < cut.parts.chunks(); ++i) sum += parts[i].sum;
    const float* x = in.Read(at, piece.first, piece.count);
    Finish(x, LargestOf(at, piece.row), sum, out.Write(at, piece.first), piece.count);
    out.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }
};

absl::StatusOr<Kernel> PrepareSoftmax(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  if (output.type.empty()) return ZeroKernel(output);
  const RowParts cut = RowParts::Of(input.type);
  MemoryPlan scratch;
  const auto op =
      std::make_shared<const Softmax>(Softmax{.cut = cut,
                                              .in = FloatBlock(input, cut.elements(), scratch),
                                              .out = FloatBlock(output, cut.elements(), scratch),
                                              .logarithm = instruction.softmax().logarithm()});
  if (cut.whole()) return PhasesOf<Softmax>(op, scratch, {&Softmax::WholeRows});
  Kernel kernel = PhasesOf<Softmax>(
      op, scratch, {&Softmax::FindLargest, &Softmax::FindSum, &Softmax::FinishPart});
  kernel.shared_bytes = cut.SharedBytes<Softmax::Part>();
  return kernel;
}

struct SoftmaxGradient {
  RowParts cut;
  FloatBlock y, dy, dx;
  bool logarithm;

  // The sum over a row: of y * dy, or of dy for a logarithm.
  double SumOf(const float* of_y, const float* of_dy, size_t n) const {
    return logarithm ? Sum(of_dy, n) : SumOfProducts(of_y, of_dy, n);
  }
  void Finish(const float* of_y, const float* of_dy, double sum, float* result, size_t n) const {
    const auto row = static_cast<float>(sum);
    if (!logarithm) return Slope(of_y, of_dy, row, result, n);
    float block[kBlock];
    for (size_t first = 0; first < n; first += kBlock) {
      const size_t count = std::min(kBlock, n - first);
      Exp(of_y + first, block, count);
      SlopeOfLogarithm(block, of_dy + first, row, result + first, count);
    }
  }

  absl::Status WholeRows(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const float* of_y = y.Read(at, piece.first, piece.count);
    const float* of_dy = dy.Read(at, piece.first, piece.count);
    float* result = dx.Write(at, piece.first);
    for (size_t i = 0; i < piece.count; i += cut.length) {
      const double sum = SumOf(of_y + i, of_dy + i, cut.length);
      Finish(of_y + i, of_dy + i, sum, result + i, cut.length);
    }
    dx.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }
  absl::Status FindSum(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    cut.PartsOf<double>(at, 0)[chunk] = SumOf(y.Read(at, piece.first, piece.count),
                                              dy.Read(at, piece.first, piece.count), piece.count);
    return absl::OkStatus();
  }
  absl::Status FinishPart(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const auto* parts = cut.PartsOf<double>(at, piece.row);
    double sum = 0;
    for (size_t i = 0; i < cut.parts.chunks(); ++i) sum += parts[i];
    const float* of_y = y.Read(at, piece.first, piece.count);
    const float* of_dy = dy.Read(at, piece.first, piece.count);
    Finish(of_y, of_dy, sum, dx.Write(at, piece.first), piece.count);
    dx.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }
};

absl::StatusOr<Kernel> PrepareSoftmaxGradient(const program::v1::Ipu& ipu,
                                              const Instruction& instruction) {
  const Operand y = Resolve(ipu, instruction.inputs(0)), dy = Resolve(ipu, instruction.inputs(1)),
                dx = ResolveOutput(ipu, instruction, 0);
  if (dx.type.empty()) return ZeroKernel(dx);
  const RowParts cut = RowParts::Of(y.type);
  MemoryPlan scratch;
  const auto op = std::make_shared<const SoftmaxGradient>(
      SoftmaxGradient{.cut = cut,
                      .y = FloatBlock(y, cut.elements(), scratch),
                      .dy = FloatBlock(dy, cut.elements(), scratch),
                      .dx = FloatBlock(dx, cut.elements(), scratch),
                      .logarithm = instruction.softmax_gradient().logarithm()});
  if (cut.whole()) return PhasesOf<SoftmaxGradient>(op, scratch, {&SoftmaxGradient::WholeRows});
  Kernel kernel = PhasesOf<SoftmaxGradient>(
      op, scratch, {&SoftmaxGradient::FindSum, &SoftmaxGradient::FinishPart});
  kernel.shared_bytes = cut.SharedBytes<double>();
  return kernel;
}

}  // namespace

std::vector<KernelDef> SoftmaxKernels() {
  return {{Instruction::kSoftmax, PrepareSoftmax},
          {Instruction::kSoftmaxGradient, PrepareSoftmaxGradient}};
}

}  // namespace vpod::engine
