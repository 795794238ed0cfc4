// Values by tile.
#pragma once

#include <cstdint>
#include <vector>

namespace vpod::pva {

// Neighbouring tiles with equal values.
struct TileRun {
  uint32_t tiles = 0;
  uint64_t value = 0;
  friend bool operator==(const TileRun&, const TileRun&) = default;
};
using TileRuns = std::vector<TileRun>;

}  // namespace vpod::pva
