// Resizes images, as torch.nn.functional.interpolate does.
#pragma once

#include "client/graph/graph.h"

namespace vpod::nn {

enum class Interpolation {
  kNearest,       // the pixel at the left of the place, PyTorch's "nearest"
  kNearestExact,  // the pixel whose centre is nearest, "nearest-exact"
  kLinear,        // "linear", "bilinear" or "trilinear", by the number of dimensions
  kCubic,         // "bicubic": the cubic convolution of Keys with a = -0.75
};

struct ResizeOptions {
  Interpolation interpolation = Interpolation::kNearest;
  // The centres of the outermost pixels stay where they are, not the edges of the image. For linear
  // and cubic interpolation.
  bool align_corners = false;
};

// [n, channels, spatial…] of floats, with `size` as the spatial dimensions of the result. Weights
// of pixels, and sums of them, are in float32.
graph::Tensor Resize(graph::Graph& graph, graph::Tensor image, const graph::Dims& size,
                     const ResizeOptions& options);

}  // namespace vpod::nn
