// The share of the fullest tile of a partition.
#pragma once

#include <cstdint>

#include "device/model/partition.h"

namespace vpod::model {

struct TileShape {
  using Plane = PlannedConvolution::Plane;

  // In units of what the vertex takes at once.
  uint64_t group_blocks, input_blocks, output_blocks;
  uint64_t batch;
  Plane field, kernel;
  // Elements of the operands and of the partial results, rounded up to these units.
  uint64_t image, weights, partials;
};

TileShape ShapeOf(const PlannedConvolution& convolution, const Partition& partition);

inline uint64_t Product(const PlannedConvolution::Plane& plane) { return plane[0] * plane[1]; }

// Pixels of the image under a part of the field and of the window.
PlannedConvolution::Plane ImageUnder(const PlannedConvolution& convolution,
                                     const PlannedConvolution::Plane& field,
                                     const PlannedConvolution::Plane& kernel);

}  // namespace vpod::model
