// How a convolution is cut: which images, or which rows of an image, make up a piece, and what the
// convolution over the piece looks like.
#pragma once

#include <cstdint>
#include <vector>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// A convolution in terms of its forward pass. The indices of the first spatial dimension are called
// rows.
struct ConvolutionShape {
  int64_t images = 0, groups = 1;
  int64_t channels = 0, outputs = 0;  // of all groups
  program::Dims image, result;        // spatial sizes
  program::Dims kernel, stride, dilation, pad_before, pad_after;

  int64_t weights() const;       // elements
  double operations() const;     // multiply-adds
  int64_t image_pixels() const;  // of one image
  int64_t result_pixels() const;
};

// Consecutive images, whole or, if it is one image, some of its rows.
struct ConvolutionPiece {
  int64_t first_image = 0, images = 1;
  int64_t image_row = 0, image_rows = 0;
  int64_t result_row = 0, result_rows = 0;
  int64_t pad_before = 0, pad_after = 0;  // of the rows
};

// Cuts by rows of results (each needs rows of the image that others need too), or by rows of the
// image, for a gradient of it: each needs rows of results. A piece has about `operations`
// multiply-adds, if its rows allow that.
enum class CutBy { kResultRows, kImageRows };
std::vector<ConvolutionPiece> CutConvolution(const ConvolutionShape& shape, CutBy by,
                                             double operations);

}  // namespace vpod::engine
