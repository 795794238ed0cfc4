// What lies on each tile of an IPU, by category, when most of it is in use.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "device/model/cost.h"
#include "device/model/liveness.h"

namespace vpod::model {

enum class MemoryCategory {
  kAlwaysLive,     // variables, and what programs hand to each other
  kNotAlwaysLive,  // values while they are in use, and what ops receive and add up
  kVertexCode,
  kVertexState,
  kExchangeCode,
  kControlCode,
  kStack,  // stacks of workers and supervisor, and what is reserved
};
inline constexpr size_t kMemoryCategories = 7;
// "not always live"
absl::string_view Name(MemoryCategory category);

struct TileMemory {
  std::array<uint64_t, kMemoryCategories> bytes = {};

  uint64_t& operator[](MemoryCategory category) { return bytes[static_cast<size_t>(category)]; }
  uint64_t operator[](MemoryCategory category) const {
    return bytes[static_cast<size_t>(category)];
  }
  uint64_t total() const;
};

struct IpuMemory {
  std::vector<TileMemory> tiles;  // the bytes that are not always live are the most of all steps
  uint32_t fullest = 0;           // tile
  // When most of the fullest tile is in use.
  uint32_t program = 0, step = 0;
  Liveness liveness;
  // Bytes that are not always live of each step of each program: on the tile that has most, and on
  // all tiles.
  struct StepUse {
    uint64_t on_a_tile = 0, on_all = 0;
  };
  std::vector<std::vector<StepUse>> steps;

  uint64_t total() const;
};

// Of a valid executable. Pure, in time that grows with the instructions and the tiles.
IpuMemory PlanMemory(const program::v1::Executable& executable, uint32_t ipu,
                     const Topology& topology);

}  // namespace vpod::model
