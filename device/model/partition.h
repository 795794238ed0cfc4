// How a convolution is split over the tiles of an IPU, and what that costs: the variables and the
// terms of spec/planner.md 2 and 3. Sizes are in elements unless the name says bytes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "device/arch/hardware.h"
#include "device/model/tile_plan.h"

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
  // Operands that do not lie as the AMP reads them.
  bool rearranges_image = false, rearranges_weights = false;

  friend auto operator<=>(const PlannedConvolution&, const PlannedConvolution&) = default;
};

// The vertices of the AMP: for a window of one element, and for any.
enum class AmpVertex { k1x1, kNx1 };

// Into how many parts the dimensions are split. All parts are on tiles of their own, but the serial
// ones follow one another.
struct Partition {
  AmpVertex vertex = AmpVertex::k1x1;
  // The AMP takes so many input channels at once: 16 of float16, 8 of float32. With fewer, it takes
  // several rows of the window in their place.
  uint64_t channels_at_once = 16, rows_at_once = 1;
  uint64_t groups = 1, batch = 1, inputs = 1, outputs = 1, serial_outputs = 1;
  PlannedConvolution::Plane field = {1, 1}, kernel = {1, 1};

  uint64_t tiles() const {
    return groups * batch * inputs * outputs * field[0] * field[1] * kernel[0] * kernel[1];
  }
};

// A step of the tree that adds partial results of several tiles: what each tile receives, and the
// addition.
struct ReduceStage {
  uint64_t bytes = 0, cycles = 0;
};

// What the fullest tile takes: for each serial part, except for the rearrangements.
struct PartitionCost {
  // Copies before all else: cycles, and bytes that are exchanged.
  struct Rearrangement {
    uint64_t cycles, bytes;
  };
  std::vector<Rearrangement> rearrangements;
  uint64_t operand_bytes = 0;  // received
  uint64_t vertex_cycles = 0;
  std::vector<ReduceStage> reduction;
  uint64_t serial = 1;
  uint64_t temporary_bytes = 0;  // operands and partial results on the tile

  uint64_t total_cycles() const;
};

PartitionCost CostOf(const PlannedConvolution& convolution, const Partition& partition);

// The same as steps.
std::vector<PlanStep> StepsOf(const PartitionCost& cost, const Partition& partition);

// Cycles of the partition's vertex on its fullest tile.
uint64_t AmpVertexCycles(const PlannedConvolution& convolution, const Partition& partition);

// The partition of the fewest cycles whose temporary memory is within this proportion of a tile's;
// of the least memory, if none is. Pure, bounded by some ten milliseconds, and remembered.
struct PlannedPartition {
  Partition partition;
  PartitionCost cost;
};
inline constexpr double kAvailableMemoryProportion = 0.6;  // A poplibs
PlannedPartition FindPartition(const PlannedConvolution& convolution,
                               double proportion = kAvailableMemoryProportion);

}  // namespace vpod::model
