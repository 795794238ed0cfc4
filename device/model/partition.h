// How a convolution is split over the tiles of an IPU, and what that costs: the variables of
// spec/planner.md 2 and the terms of 3, but for those that docs/fidelity.md leaves out. Sizes are
// in elements unless the name says bytes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "device/arch/hardware.h"
#include "device/model/reduction.h"

namespace vpod::model {

// A convolution over images of two dimensions, whose fields are those of the forward pass whatever
// pass it is: the gradients are convolutions as well (convolution.cc).
struct PlannedConvolution {
  using Plane = std::array<uint64_t, 2>;

  uint64_t groups = 1, batch = 1;
  uint64_t inputs = 1, outputs = 1;       // channels of a group
  Plane field = {1, 1}, kernel = {1, 1};  // the pixels of a result, the window
  // Pixels of the image from one result to the next and from one element of the window to the next;
  // the image has `spread - 1` zeros between its pixels.
  Plane stride = {1, 1}, dilation = {1, 1}, spread = {1, 1};
  bool half = true;  // the elements are float16, not float32
  bool half_partials = false;
  // Where an operand lies: as the split wants it, so that a tile receives only what others have as
  // well; anywhere; or not even in the order in which the vertex reads it.
  enum class Place { kInPlace, kElsewhere, kInOtherOrder };
  Place image = Place::kElsewhere, weights = Place::kElsewhere;
  double memory_proportion = arch::kAvailableMemoryProportion;

  friend auto operator<=>(const PlannedConvolution&, const PlannedConvolution&) = default;
};

// Vertices of convolutions: on the AMP for windows of one element and for any windows; on the AMP
// in its mode for narrow groups, which takes four columns of the window at once; multiply-adds of
// vectors of groups with one channel; and dot products along the channels.
enum class ConvolutionVertex { kAmp1x1, kAmpNx1, kSlic, kVmac, kHmac };

// Into how many parts the dimensions are split. All parts are on tiles of their own, but the serial
// ones follow one another.
struct Partition {
  ConvolutionVertex vertex = ConvolutionVertex::kAmp1x1;
  // The elements that the vertex takes at once, so that more is rounded up to a multiple: the AMP
  // 16 inputs of float16 or 8 of float32, and with fewer of them several rows of the window in
  // their place.
  uint64_t groups_at_once = 1, inputs_at_once = 16, outputs_at_once = 16, rows_at_once = 1;
  uint64_t groups = 1, batch = 1, inputs = 1, outputs = 1, serial_outputs = 1;
  PlannedConvolution::Plane field = {1, 1}, kernel = {1, 1};

  uint64_t tiles() const {
    return groups * batch * inputs * outputs * field[0] * field[1] * kernel[0] * kernel[1];
  }
};

// The memory that the fullest tile takes: for each serial part, except for the rearrangements.
struct PartitionCost {
  // Copies before all else: cycles, and bytes that are exchanged.
  struct Rearrangement {
    uint64_t cycles, bytes;
  };
  std::vector<Rearrangement> rearrangements;
  uint64_t operand_bytes = 0;  // received
  uint64_t fragments = 1;      // pieces in which they are received
  uint64_t sent_bytes = 0;
  uint64_t vertex_cycles = 0;
  uint64_t vertex_state_bytes = 0;
  uint64_t partial_bytes = 0;
  std::vector<ReduceStage> reduction;
  uint64_t serial = 1;
  uint64_t temporary_bytes = 0;  // operands and partial results on the tile

  // The price of StepsOf, which the search has no time to make.
  uint64_t total_cycles() const;
};

PartitionCost CostOf(const PlannedConvolution& convolution, const Partition& partition);

// The same as steps.
std::vector<PlanStep> StepsOf(const PartitionCost& cost, const Partition& partition);

// Cycles of the partition's vertex on its fullest tile.
uint64_t VertexCycles(const PlannedConvolution& convolution, const Partition& partition);

// The partition of the fewest cycles whose temporary memory is within the proportion of a tile's;
// of the least memory, if none is. Pure, bounded by some 100 ms, and remembered.
struct PlannedPartition {
  Partition partition;
  PartitionCost cost;
};
PlannedPartition FindPartition(const PlannedConvolution& convolution);
// The same among partitions whose numbers are powers of two, in some 10 ms.
PlannedPartition FindCoarsePartition(const PlannedConvolution& convolution);

}  // namespace vpod::model
