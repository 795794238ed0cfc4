#include "client/compiler/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace vpod::compiler {

uint64_t PlaceStorage(std::vector<Storage>& blocks, uint64_t base) {
  constexpr uint64_t kAlignment = 64;
  const auto aligned = [](uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  uint64_t end = base;
  std::vector<size_t> placed;  // by offset
  for (size_t index : order) {
    Storage& block = blocks[index];
    uint64_t at = base;
    for (size_t other_index : placed) {
      const Storage& other = blocks[other_index];
      if (other.last < block.first || block.last < other.first) continue;
      if (at + block.bytes <= other.offset) break;  // fits into the gap before it
      at = std::max(at, other.offset + aligned(other.bytes));
    }
    block.offset = at;
    end = std::max(end, at + aligned(block.bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), index,
                         [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; }),
        index);
  }
  return end;
}

}  // namespace vpod::compiler
