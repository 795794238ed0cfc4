#include <cmath>
#include <memory>

#include "device/base/simd.h"
#include "device/engine/kernels/row_parts.h"
#include "device/engine/kernels/row_sums.h"

namespace vpod::engine {
namespace {

// The mean in two parts: the difference to it keeps its digits where the mean is much larger.
VPOD_SIMD void Normalize(const float* x, double mean, float deviation, float* y, size_t n) {
  const auto high = static_cast<float>(mean), low = static_cast<float>(mean - high);
  for (size_t i = 0; i < n; ++i) y[i] = (x[i] - high - low) * deviation;
}
VPOD_SIMD void ScaleAndShift(const float* scale, const float* offset, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = y[i] * scale[i] + offset[i];
}

struct LayerNorm {
  RowParts cut;
  FloatBlock in, scale, offset, out;
  Operand mean, deviation;
  bool affine;
  double epsilon;

  struct Part {
    double sum, squares;
  };

  void WriteMoments(const Workspace& at, size_t row, double of_row, float inverse) const {
    mean.As<float>(at)[row] = static_cast<float>(of_row);
    deviation.As<float>(at)[row] = inverse;
  }
  float Inverse(double squares) const {
    return static_cast<float>(1 / std::sqrt(squares / static_cast<double>(cut.length) + epsilon));
  }
  double MeanOf(double sum) const { return sum / static_cast<double>(cut.length); }

  absl::Status WholeRows(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const float* x = in.Read(at, piece.first, piece.count);
    const float* factors = affine ? scale.Read(at, 0, cut.length) : nullptr;
    const float* terms = affine ? offset.Read(at, 0, cut.length) : nullptr;
    float* y = out.Write(at, piece.first);
    for (size_t row = 0; row < piece.rows; ++row, x += cut.length, y += cut.length) {
      const double of_row = MeanOf(Sum(x, cut.length));
      const float inverse = Inverse(SumOfSquares(x, of_row, cut.length));
      WriteMoments(at, piece.row + row, of_row, inverse);
      Normalize(x, of_row, inverse, y, cut.length);
      if (affine) ScaleAndShift(factors, terms, y, cut.length);
    }
    out.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }

  // The sum of what the parts of a row have found.
  double Total(const Workspace& at, size_t row, double Part::*found) const {
    const Part* parts = cut.PartsOf<Part>(at, row);
    double total = 0;
    for (size_t i = 0; i < cut.parts.chunks(); ++i) total += parts[i].*found;
    return total;
  }
  absl::Status FindSum(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    cut.PartsOf<Part>(at, 0)[chunk].sum = Sum(in.Read(at, piece.first, piece.count), piece.count);
    return absl::OkStatus();
  }
  absl::Status FindSquares(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const double of_row = MeanOf(Total(at, piece.row, &Part::sum));
    cut.PartsOf<Part>(at, 0)[chunk].squares =
        SumOfSquares(in.Read(at, piece.first, piece.count), of_row, piece.count);
    return absl::OkStatus();
  }
  absl::Status FinishPart(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const double of_row = MeanOf(Total(at, piece.row, &Part::sum));
    const float inverse = Inverse(Total(at, piece.row, &Part::squares));
    if (piece.column == 0) WriteMoments(at, piece.row, of_row, inverse);
    const float* x = in.Read(at, piece.first, piece.count);
    float* y = out.Write(at, piece.first);
    Normalize(x, of_row, inverse, y, piece.count);
    if (affine) {
      ScaleAndShift(scale.Read(at, piece.column, piece.columns),
                    offset.Read(at, piece.column, piece.columns), y, piece.count);
    }
    out.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }
};

absl::StatusOr<Kernel> PrepareLayerNorm(const program::v1::Ipu& ipu,
                                        const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  if (output.type.empty()) return ZeroKernel(output);
  const bool affine = instruction.inputs_size() == 3;
  const RowParts cut = RowParts::Of(input.type);
  MemoryPlan scratch;
  const auto vector = [&](int position) {
    if (!affine) return FloatBlock();
    return FloatBlock(Resolve(ipu, instruction.inputs(position)), cut.parts.per_chunk, scratch);
  };
  const auto op = std::make_shared<const LayerNorm>(
      LayerNorm{.cut = cut,
                .in = FloatBlock(input, cut.elements(), scratch),
                .scale = vector(1),
                .offset = vector(2),
                .out = FloatBlock(output, cut.elements(), scratch),
                .mean = Resolve(ipu, instruction.outputs(1)),
                .deviation = Resolve(ipu, instruction.outputs(2)),
                .affine = affine,
                .epsilon = instruction.layer_norm().epsilon()});
  if (cut.whole()) return PhasesOf<LayerNorm>(op, scratch, {&LayerNorm::WholeRows});
  Kernel kernel = PhasesOf<LayerNorm>(
      op, scratch, {&LayerNorm::FindSum, &LayerNorm::FindSquares, &LayerNorm::FinishPart});
  kernel.shared_bytes = cut.SharedBytes<LayerNorm::Part>();
  return kernel;
}

VPOD_SIMD void Multiply(const float* a, const float* b, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}
// dx = deviation * (g - mean of g - normalized * mean of (g * normalized)); `dx` may be `g` or
// `normalized`.
VPOD_SIMD void Slope(const float* g, const float* normalized, float mean, float product,
                     float deviation, float* dx, size_t n) {
  for (size_t i = 0; i < n; ++i) dx[i] = deviation * (g[i] - mean - normalized[i] * product);
}

// With g = dy * scale and x normalized by the moments of its row.
struct LayerNormGradient {
  RowParts cut;
  FloatBlock x, dy, scale, dx;
  Operand mean, deviation;
  bool affine;

  struct Part {
    double sum = 0, products = 0;  // of g, and of g and the normalized x
  };
  static constexpr size_t kBlock = 512;

  // Calls visit(first, g, normalized, n) for blocks of a row, or of a part of it.
  template <class Visit>
  void ForBlocks(const Workspace& at, size_t row, const float* of_x, const float* of_dy,
                 const float* factors, size_t n, const Visit& visit) const {
    float g[kBlock], normalized[kBlock];
    for (size_t first = 0; first < n; first += kBlock) {
      const size_t count = std::min(kBlock, n - first);
      Normalize(of_x + first, mean.As<float>(at)[row], deviation.As<float>(at)[row], normalized,
                count);
      const float* gradient = of_dy + first;
      if (affine) {
        Multiply(gradient, factors + first, g, count);
        gradient = g;
      }
      visit(first, gradient, normalized, count);
    }
  }
  Part Sums(const Workspace& at, size_t row, const float* of_x, const float* of_dy,
            const float* factors, size_t n) const {
    Part sums;
    ForBlocks(at, row, of_x, of_dy, factors, n,
              [&](size_t, const float* g, const float* normalized, size_t count) {
                sums.sum += Sum(g, count);
                sums.products += SumOfProducts(g, normalized, count);
              });
    return sums;
  }
  void Finish(const Workspace& at, size_t row, const Part& sums, const float* of_x,
              const float* of_dy, const float* factors, float* result, size_t n) const {
    const auto length = static_cast<double>(cut.length);
    const auto of_g = static_cast<float>(sums.sum / length),
               of_products = static_cast<float>(sums.products / length);
    ForBlocks(at, row, of_x, of_dy, factors, n,
              [&](size_t first, const float* g, const float* normalized, size_t count) {
                Slope(g, normalized, of_g, of_products, deviation.As<float>(at)[row],
                      result + first, count);
              });
  }

  absl::Status WholeRows(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const float* of_x = x.Read(at, piece.first, piece.count);
    const float* of_dy = dy.Read(at, piece.first, piece.count);
    const float* factors = affine ? scale.Read(at, 0, cut.length) : nullptr;
    float* result = dx.Write(at, piece.first);
    for (size_t i = 0; i < piece.rows; ++i) {
      const size_t row = piece.row + i, place = i * cut.length;
      const Part sums = Sums(at, row, of_x + place, of_dy + place, factors, cut.length);
      Finish(at, row, sums, of_x + place, of_dy + place, factors, result + place, cut.length);
    }
    dx.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }
  absl::Status FindSums(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const float* factors = affine ? scale.Read(at, piece.column, piece.columns) : nullptr;
    cut.PartsOf<Part>(at, 0)[chunk] =
        Sums(at, piece.row, x.Read(at, piece.first, piece.count),
             dy.Read(at, piece.first, piece.count), factors, piece.count);
    return absl::OkStatus();
  }
  absl::Status FinishPart(const Workspace& at, size_t chunk) const {
    const RowParts::Piece piece = cut[chunk];
    const Part* parts = cut.PartsOf<Part>(at, piece.row);
    Part sums;
    for (size_t i = 0; i < cut.parts.chunks(); ++i) {
      sums.sum += parts[i].sum;
      sums.products += parts[i].products;
    }
    const float* factors = affine ? scale.Read(at, piece.column, piece.columns) : nullptr;
    Finish(at, piece.row, sums, x.Read(at, piece.first, piece.count),
           dy.Read(at, piece.first, piece.count), factors, dx.Write(at, piece.first), piece.count);
    dx.Store(at, piece.first, piece.count);
    return absl::OkStatus();
  }
};

absl::StatusOr<Kernel> PrepareLayerNormGradient(const program::v1::Ipu& ipu,
                                                const Instruction& instruction) {
  const Operand x = Resolve(ipu, instruction.inputs(0)), dy = Resolve(ipu, instruction.inputs(1)),
                dx = ResolveOutput(ipu, instruction, 0);
  if (dx.type.empty()) return ZeroKernel(dx);
  const bool affine = instruction.inputs_size() == 5;
  const RowParts cut = RowParts::Of(x.type);
  MemoryPlan scratch;
  const auto op = std::make_shared<const LayerNormGradient>(LayerNormGradient{
      .cut = cut,
      .x = FloatBlock(x, cut.elements(), scratch),
      .dy = FloatBlock(dy, cut.elements(), scratch),
      .scale = affine
                   ? FloatBlock(Resolve(ipu, instruction.inputs(4)), cut.parts.per_chunk, scratch)
                   : FloatBlock(),
      .dx = FloatBlock(dx, cut.elements(), scratch),
      .mean = Resolve(ipu, instruction.inputs(2)),
      .deviation = Resolve(ipu, instruction.inputs(3)),
      .affine = affine});
  if (cut.whole()) return PhasesOf<LayerNormGradient>(op, scratch, {&LayerNormGradient::WholeRows});
  Kernel kernel = PhasesOf<LayerNormGradient>(
      op, scratch, {&LayerNormGradient::FindSums, &LayerNormGradient::FinishPart});
  kernel.shared_bytes = cut.SharedBytes<LayerNormGradient::Part>();
  return kernel;
}

}  // namespace

std::vector<KernelDef> LayerNormKernels() {
  return {{Instruction::kLayerNorm, PrepareLayerNorm},
          {Instruction::kLayerNormGradient, PrepareLayerNormGradient}};
}

}  // namespace vpod::engine
