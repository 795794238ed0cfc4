#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

std::string LargestTensors(const program::v1::Ipu& ipu) {
  std::vector<program::TensorType> types;
  for (const auto& tensor : ipu.tensors()) types.push_back(program::TypeOf(tensor));
  const size_t shown = std::min<size_t>(3, types.size());
  std::partial_sort(types.begin(), types.begin() + shown, types.end(),
                    [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
  types.resize(shown);
  return absl::StrJoin(types, ", ", [](std::string* out, const program::TensorType& type) {
    absl::StrAppend(out, type.ToString(), " (", type.bytes(), " bytes)");
  });
}

// Programs of one executable may have theirs at the same place.
uint64_t BytesOfWideAccumulators(const program::v1::Ipu& ipu) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& tensor : ipu.tensors()) {
    if (tensor.wide_accumulator())
      ranges.emplace_back(tensor.offset(), tensor.offset() + program::ArenaBytes(tensor));
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t bytes = 0, covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (end <= covered) continue;
    bytes += end - std::max(begin, covered);
    covered = end;
  }
  return bytes;
}

}  // namespace

Bytes MemoryUse(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology) {
  const program::v1::Ipu& text = executable.ipus(ipu);
  // The emulator's accumulators are twice as wide as the device's.
  uint64_t bytes = text.arena_bytes() - BytesOfWideAccumulators(text) / 2;
  bytes += arch::kReservedTileBytes * arch::kTilesPerIpu;
  const PlanContext context(executable, ipu, topology);
  std::map<program::OpKind, uint64_t> code;  // of the vertices, by the largest plan of the kind
  for (const auto& function : text.functions()) {
    for (const Instruction& instruction : function.instructions()) {
      uint64_t vertex_code = 0;
      for (const TileBytes& tile : Plan(instruction, context).bytes) {
        vertex_code += tile.tiles * tile.vertex_code;
        bytes += tile.tiles * (tile.vertex_state + tile.control_code);
      }
      uint64_t& largest = code[instruction.attributes_case()];
      largest = std::max(largest, vertex_code);
    }
  }
  for (const auto& [kind, vertex_code] : code) bytes += vertex_code;
  return Bytes(bytes);
}

absl::StatusOr<std::vector<Bytes>> CheckMemory(const program::v1::Executable& executable,
                                               const Topology& topology) {
  std::vector<Bytes> use;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    use.push_back(MemoryUse(executable, ipu, topology));
    if (use.back() > arch::kIpuMemory) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "Out of memory: Cannot fit all variable data onto one or more tiles. IPU ", ipu,
          " needs ", use.back().value(), " bytes, ", (use.back() - arch::kIpuMemory).value(),
          " more than its ", arch::kIpuMemory.value(),
          ". Largest tensors: ", LargestTensors(executable.ipus(ipu))));
    }
  }
  return use;
}

}  // namespace vpod::model
