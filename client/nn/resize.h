// Resizes images, as torch.nn.functional.interpolate does.
#pragma once

#include <array>
#include <vector>

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
  // A pixel of a smaller result is made of all the pixels that it covers. For linear and cubic
  // interpolation; cubic weights are those of Keys with a = -0.5 then.
  bool antialias = false;
  // How many pixels of the result one of the image becomes, along each spatial dimension, where
  // that is not the quotient of the lengths: PyTorch's scale factors, which the result's lengths
  // round down. Without effect where corners are aligned.
  std::vector<double> scales = {};
};

// [n, channels, spatial…] of floats, with `size` as the spatial dimensions of the result. Weights
// of pixels, and sums of them, are in float32. With antialiasing each dimension is a product with a
// matrix of weights, which is a constant of the executable; a pixel that is not finite then makes
// all pixels of its line not-a-number.
graph::Tensor Resize(graph::Graph& graph, graph::Tensor image, const graph::Dims& size,
                     const ResizeOptions& options);

// The weights of cubic interpolation, in the shape of `share` (FLOAT32), for the four pixels around
// a place that is this share of the way from the second of them to the third.
std::array<graph::Tensor, 4> CubicWeights(graph::Graph& graph, graph::Tensor share);

}  // namespace vpod::nn
