// The memory that each tile of an IPU needs, by category.
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

class PlanContext;

struct TileMemory {
  std::array<uint64_t, kMemoryCategories> bytes = {};

  uint64_t& operator[](MemoryCategory category) { return bytes[static_cast<size_t>(category)]; }
  uint64_t operator[](MemoryCategory category) const {
    return bytes[static_cast<size_t>(category)];
  }
  uint64_t total() const;
};

struct IpuMemory {
  std::vector<TileMemory> tiles;  // of each category the most bytes of all steps
  uint32_t fullest = 0;           // number of the tile that needs most
  // When that tile needs most.
  uint32_t program = 0, step = 0;
  Liveness liveness;
  // The bytes that an instruction receives and adds up on a tile, while it runs; [program][step].
  std::vector<std::vector<uint64_t>> temporary_bytes;

  uint64_t total() const;
};

// A tensor on a tile, and the value that it has there; none of tensors that are always live.
struct TileTensor {
  uint32_t tensor;
  uint64_t bytes;
  const LiveValue* value;
};
// The contents of the fullest tile when it needs most, besides code and what an instruction
// receives and adds up.
std::vector<TileTensor> OnFullestTile(const IpuMemory& memory, const PlanContext& context);

// The bytes of a tensor on each tile of its span.
uint64_t BytesPerTile(const program::TensorType& type, uint32_t tiles);

// Plans the memory of one IPU of a valid executable. Pure; the time grows with instructions ×
// tiles.
IpuMemory PlanMemory(const program::v1::Executable& executable, uint32_t ipu,
                     const Topology& topology);

}  // namespace vpod::model
