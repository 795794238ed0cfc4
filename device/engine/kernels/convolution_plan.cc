#include "device/engine/kernels/convolution_plan.h"

#include <cmath>

namespace vpod::engine {
namespace {

int64_t Product(const program::Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of a piece's image or result: more would leave the caches, and fill scratch memory.
constexpr int64_t kElementsOfAPiece = int64_t{1} << 22;

// Result rows [first, end) and the rows of the image under their windows.
ConvolutionPiece OfResultRows(const ConvolutionShape& s, int64_t first, int64_t end) {
  const int64_t extent = s.dilation[0] * (s.kernel[0] - 1) + 1;
  const int64_t top = first * s.stride[0] - s.pad_before[0];
  const int64_t bottom = (end - 1) * s.stride[0] - s.pad_before[0] + extent;
  ConvolutionPiece piece;
  piece.image_row = std::clamp<int64_t>(top, 0, s.image[0] - 1);
  piece.image_rows = std::clamp<int64_t>(bottom, piece.image_row + 1, s.image[0]) - piece.image_row;
  piece.result_row = first;
  piece.result_rows = end - first;
  piece.pad_before = piece.image_row - top;
  piece.pad_after = std::max<int64_t>(0, bottom - piece.image_row - piece.image_rows);
  return piece;
}

// Image rows [first, end) and the rows of results whose windows touch them. `first` is 0 or where a
// window begins.
ConvolutionPiece OfImageRows(const ConvolutionShape& s, int64_t first, int64_t end) {
  const int64_t extent = s.dilation[0] * (s.kernel[0] - 1) + 1;
  const int64_t padded = first + s.pad_before[0];
  ConvolutionPiece piece;
  piece.image_row = first;
  piece.image_rows = end - first;
  piece.result_row = std::max<int64_t>(0, CeilDiv(padded - extent + 1, s.stride[0]));
  piece.result_rows =
      std::min(s.result[0], (end - 1 + s.pad_before[0]) / s.stride[0] + 1) - piece.result_row;
  piece.pad_before = padded - piece.result_row * s.stride[0];
  piece.pad_after = std::max<int64_t>(
      0, (piece.result_rows - 1) * s.stride[0] + extent - piece.pad_before - piece.image_rows);
  return piece;
}

}  // namespace

int64_t ConvolutionShape::weights() const {
  return outputs * (channels / groups) * Product(kernel);
}
double ConvolutionShape::operations() const {
  return static_cast<double>(images * result_pixels()) * static_cast<double>(weights());
}
int64_t ConvolutionShape::image_pixels() const { return Product(image); }
int64_t ConvolutionShape::result_pixels() const { return Product(result); }

std::vector<ConvolutionPiece> CutConvolution(const ConvolutionShape& s, CutBy by,
                                             double operations) {
  const double of_image = s.operations() / static_cast<double>(s.images);
  const int64_t elements = std::max(s.image_pixels() * s.channels, s.result_pixels() * s.outputs);
  const ConvolutionPiece whole{.image_rows = s.image[0],
                               .result_rows = s.result[0],
                               .pad_before = s.pad_before[0],
                               .pad_after = s.pad_after[0]};
  std::vector<ConvolutionPiece> pieces;
  if (of_image <= kOperationsOfAChunk / 2 && elements <= kElementsOfAPiece) {
    const auto fit = static_cast<int64_t>(operations / of_image);
    const int64_t most =
        std::clamp<int64_t>(std::min(fit, kElementsOfAPiece / elements), 1, s.images);
    for (int64_t first = 0; first < s.images; first += most) {
      pieces.push_back(whole);
      pieces.back().first_image = first;
      pieces.back().images = std::min(most, s.images - first);
    }
    return pieces;
  }
  const int64_t parts = std::max(CeilDiv(elements, kElementsOfAPiece),
                                 static_cast<int64_t>(std::ceil(of_image / operations)));
  const bool by_result = by == CutBy::kResultRows;
  const int64_t rows = by_result ? s.result[0] : s.image[0];
  // Rows of an image are cut where a window begins.
  const int64_t unit = by_result ? 1 : s.stride[0];
  const int64_t step = std::max<int64_t>(1, rows / parts / unit) * unit;
  for (int64_t image = 0; image < s.images; ++image) {
    for (int64_t row = 0; row < rows;) {
      int64_t end = std::min(rows, row + step);
      if (!by_result && row == 0 && end < rows)
        end = std::max<int64_t>(1, end - s.pad_before[0] % unit);
      pieces.push_back(by_result ? OfResultRows(s, row, end) : OfImageRows(s, row, end));
      pieces.back().first_image = image;
      row = end;
    }
  }
  return pieces;
}

}  // namespace vpod::engine
