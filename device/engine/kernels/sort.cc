#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <type_traits>

#include "device/engine/kernels/operand.h"
#include "device/program/ops/line.h"

namespace vpod::engine {
namespace {

// Unsigned integers in the order of the elements.
template <class T>
uint32_t KeyOf(T x) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, _Float16>) {
    const auto value = static_cast<float>(x);
    if (value != value) return UINT32_MAX;                    // larger than infinity
    const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // there is one zero
    return bits >> 31 != 0 ? ~bits : bits | 1u << 31;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<uint32_t>(static_cast<int32_t>(x)) ^ 1u << 31;
  } else {
    return x;
  }
}

// Lines that are sorted together, because shared memory holds as many elements.
struct Group {
  size_t first = 0;  // line
  Chunking blocks;   // of a chunk
  Chunking pieces;   // of the lines' memory, in a merge
  Chunking results;  // of a chunk
};
constexpr size_t kElementsOfAGroup = program::kMostSortedElements;

// The tensors as [outer, length, inner], lines along the axis one after the other in shared memory:
// keys with the places below them, so that no two are equal. Blocks are sorted, then merged in
// pairs, until a block holds a line.
struct Sort {
  Operand input, values, places;
  bool descending = false;
  size_t outer = 1, length = 1, inner = 1, count = 0;
  size_t block = 1;           // elements of a line that are sorted at once
  size_t lines_together = 1;  // in a group

  size_t lines() const { return outer * inner; }
  size_t blocks_of_line() const { return (length + block - 1) / block; }
  // A group's elements, of which there are two copies if they are merged.
  uint64_t* Memory(const Workspace& at, int which) const {
    return reinterpret_cast<uint64_t*>(at.shared) +
           static_cast<size_t>(which) * lines_together * length;
  }
  // Element `i` of a line.
  size_t Place(size_t line, size_t i) const {
    return (line / inner * length + i) * inner + line % inner;
  }

  absl::Status SortBlocks(const Workspace& at, const Group& group, size_t chunk) const {
    WithElement(input.type.type, [&](auto element) {
      const auto* x = input.As<decltype(element)>(at);
      for (size_t b = group.blocks.begin(chunk); b < group.blocks.end(chunk); ++b) {
        const size_t line = b / blocks_of_line(), begin = b % blocks_of_line() * block,
                     end = std::min(length, begin + block);
        uint64_t* keys = Memory(at, 0) + line * length;
        for (size_t i = begin; i < end; ++i) {
          const uint32_t key = KeyOf(x[Place(group.first + line, i)]);
          keys[i] = uint64_t{descending ? ~key : key} << 32 | i;
        }
        std::sort(keys + begin, keys + end);
      }
    });
    return absl::OkStatus();
  }

  // Writes elements [begin, end) of the merger of two sorted ranges.
  static void Merge(const uint64_t* a, size_t a_size, const uint64_t* b, size_t b_size,
                    size_t begin, size_t end, uint64_t* to) {
    // How many of the first `begin` come from a.
    size_t low = begin > b_size ? begin - b_size : 0, high = std::min(begin, a_size);
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (a[middle] < b[begin - middle - 1]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    size_t i = low, j = begin - low;
    for (size_t k = begin; k < end; ++k) {
      const bool from_a = j == b_size || (i < a_size && a[i] < b[j]);
      to[k] = from_a ? a[i++] : b[j++];
    }
  }

  // Merges pairs of runs of `run` elements; `which` memory holds them.
  absl::Status MergePiece(const Workspace& at, const Group& group, size_t run, int which,
                          size_t chunk) const {
    for (size_t e = group.pieces.begin(chunk); e < group.pieces.end(chunk);) {
      const size_t line = e / length, place = e % length, pair = place / (2 * run) * (2 * run);
      const size_t middle = std::min(length, pair + run),
                   pair_end = std::min(length, pair + 2 * run);
      const size_t end = std::min(pair_end, place + (group.pieces.end(chunk) - e));
      const uint64_t* from = Memory(at, which) + line * length;
      Merge(from + pair, middle - pair, from + middle, pair_end - middle, place - pair, end - pair,
            Memory(at, 1 - which) + line * length + pair);
      e += end - place;
    }
    return absl::OkStatus();
  }

  absl::Status WriteResults(const Workspace& at, const Group& group, int which,
                            size_t chunk) const {
    const size_t size = program::SizeOf(input.type.type);
    for (size_t r = group.results.begin(chunk); r < group.results.end(chunk); ++r) {
      const size_t i = r % count, line = group.first + r / count;
      const auto place = static_cast<uint32_t>(Memory(at, which)[r / count * length + i]);
      const size_t to = (line / inner * count + i) * inner + line % inner;
      std::memcpy(values.At(at) + to * size, input.At(at) + Place(line, place) * size, size);
      places.As<int32_t>(at)[to] = static_cast<int32_t>(place);
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<Kernel> PrepareSort(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Sort& op = instruction.sort();
  auto plan = std::make_shared<Sort>(Sort{.input = Resolve(ipu, instruction.inputs(0)),
                                          .values = Resolve(ipu, instruction.outputs(0)),
                                          .places = Resolve(ipu, instruction.outputs(1)),
                                          .descending = op.descending(),
                                          .count = static_cast<size_t>(op.count())});
  if (plan->values.type.empty()) return OnePhase(0, 0, nullptr);
  const program::Dims& dims = plan->input.type.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    size_t& product = i < op.axis() ? plan->outer : i == op.axis() ? plan->length : plan->inner;
    product *= static_cast<size_t>(dims[i]);
  }
  constexpr size_t kBlock = size_t{1} << 14, kPiece = size_t{1} << 16;
  plan->block = std::min(plan->length, kBlock);
  plan->lines_together = std::clamp<size_t>(kElementsOfAGroup / plan->length, 1, plan->lines());
  Kernel kernel;
  const auto add = [&](size_t chunks, auto run) {
    kernel.phases.push_back({.chunks = chunks, .run = std::move(run), .is_long = true});
  };
  for (size_t first = 0; first < plan->lines(); first += plan->lines_together) {
    const size_t lines = std::min(plan->lines_together, plan->lines() - first);
    const Group group{.first = first,
                      .blocks = ChunkItems(lines * plan->blocks_of_line(), plan->block, kBlock),
                      .pieces = ChunkItems(lines * plan->length, 1, kPiece),
                      .results = ChunkItems(lines * plan->count, 1, kPiece)};
    add(group.blocks.chunks(), [plan, group](const Workspace& at, size_t chunk) {
      return plan->SortBlocks(at, group, chunk);
    });
    int which = 0;
    for (size_t run = plan->block; run < plan->length; run *= 2, which = 1 - which) {
      add(group.pieces.chunks(), [plan, group, run, which](const Workspace& at, size_t chunk) {
        return plan->MergePiece(at, group, run, which, chunk);
      });
    }
    add(group.results.chunks(), [plan, group, which](const Workspace& at, size_t chunk) {
      return plan->WriteResults(at, group, which, chunk);
    });
  }
  const size_t copies = plan->block < plan->length ? 2 : 1;
  kernel.shared_bytes = copies * plan->lines_together * plan->length * sizeof(uint64_t);
  return kernel;
}

}  // namespace

std::vector<KernelDef> SortKernels() { return {{Instruction::kSort, PrepareSort}}; }

}  // namespace vpod::engine
