// Arithmetic of windows that slide over the spatial dimensions of an image, shared by convolution
// and pooling.
#pragma once

#include "absl/status/statusor.h"
#include "device/program/op.h"

namespace vpod::program {

// Dimensions of an image before the spatial ones.
inline constexpr size_t kImageHead = 2;
inline constexpr int kMaxSpatialRank = 3;

// Whether the type has a batch, channels and one to three spatial dimensions, of which the batch
// alone may be 0, and its elements are floats.
bool IsImage(const TensorType& type);
// The constraint is broken unless the type is that of an image. `name` is the operand's in the
// message.
absl::Status CheckImage(const Constraint& constraint, const char* name, const TensorType& image);

// The spatial dimensions of an image.
inline Dims SpatialDims(const TensorType& image) {
  return {image.dims.begin() + kImageHead, image.dims.end()};
}

// Pixels from the first that a window touches along a spatial dimension to the last:
// dilation * (kernel - 1) + 1.
int64_t WindowExtent(const v1::SlidingWindow& window, int axis);

// Number of windows along each spatial dimension of an image:
// (size + pad_before + pad_after - extent) / stride + 1, rounded down.
// The constraint is broken by a window that has not an entry for each dimension, by one outside the
// bounds that program.proto states, and by one that does not fit the padded image.
absl::StatusOr<Dims> CountWindows(const Constraint& constraint, const Dims& image_size,
                                  const v1::SlidingWindow& window);

// Elements of a window.
double KernelElements(const v1::SlidingWindow& window);

// [image.dims[0], channels, sizes…]
TensorType ImageType(const TensorType& image, int64_t channels, const Dims& sizes);

// For OpDef::layout of ops whose operands are images, or vectors, which have one layout.
Layout ImagesLayout(const v1::Instruction& instruction, OperandPlace operand);

}  // namespace vpod::program
