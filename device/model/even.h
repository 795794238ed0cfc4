// Work that is divided evenly.
#pragma once

#include <cstdint>

#include "device/arch/hardware.h"

namespace vpod::model {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Tiles that get something if each gets CeilDiv(items, tiles of an IPU) items, or the rest. At
// least one, because a vertex without elements is called all the same.
constexpr uint32_t TilesFor(uint64_t items) {
  const uint64_t per_tile = CeilDiv(items, arch::kTilesPerIpu);
  return items == 0 ? 1 : static_cast<uint32_t>(CeilDiv(items, per_tile));
}

}  // namespace vpod::model
