// The windows of pooling ops, for the rooms that look into them.
#pragma once

#include "device/program/op.h"

namespace vpod::program {

// The window of a pooling op or of the gradient of one; null if its windows divide the image.
const v1::SlidingWindow* FindPoolingWindow(const v1::Instruction& instruction);

// Pixels [begin, end) along a dimension.
struct PixelRange {
  int64_t begin, end;
};
// Window `i` of `count` that divide a dimension of `size` pixels (program.proto: MaxPool).
PixelRange DividingWindow(int64_t size, int64_t count, int64_t i);
// Pixels of all of them together: neighbours share one wherever their common border lies inside it.
int64_t DividingPixels(int64_t size, int64_t count);

// Elements of all windows of the pooling op, or of the op whose gradient it is, which turns `image`
// into `pooled`.
double PoolingElements(const v1::Instruction& instruction, const TensorType& image,
                       const TensorType& pooled);

}  // namespace vpod::program
