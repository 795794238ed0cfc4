// Arithmetic of sliding windows, shared by convolution and pooling.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// Height and width of the result of sliding a kernel over an NHWC image. InvalidArgument for
// strides of 0, padding not smaller than the kernel, or a kernel larger than the padded image.
absl::StatusOr<std::pair<int64_t, int64_t>> WindowedSize(const TensorType& image,
                                                         const v1::Window& window, int64_t kernel_h,
                                                         int64_t kernel_w);

}  // namespace vpod::program
