#include "client/compiler/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "device/program/executable.h"

namespace vpod::compiler {
namespace {

// The storages of an IPU with their sizes and lifetimes.
std::vector<Storage> Lifetimes(LoweredIpu& ipu) {
  std::vector<Storage> storages(ipu.num_storages);
  std::vector<bool> seen(ipu.num_storages), whole_run(ipu.num_storages);
  for (const LoweredTensor& tensor : ipu.tensors) {
    Storage& storage = storages[tensor.storage];
    storage.bytes =
        std::max(storage.bytes, tensor.offset + program::ArenaBytes(Describe(tensor, 0)));
  }
  int step = 0;
  const auto use = [&](uint32_t index) {
    const uint32_t id = ipu.tensors[index].storage;
    if (!seen[id]) storages[id].first = step;
    seen[id] = true;
    storages[id].last = step;
  };
  const auto use_all = [&](const std::vector<LoweredStep>& steps) {
    for (const LoweredStep& each : steps) {
      for (uint32_t tensor : TensorsOf(each.instruction)) use(tensor);
      ++step;
    }
  };
  for (uint32_t id : ipu.pinned) whole_run[id] = true;
  for (int section = 0; section < kNumSections; ++section) {
    if (section == static_cast<int>(Section::kBody)) {
      use_all(ipu.cycle);
      for (const std::vector<LoweredStep>& steps : ipu.positions) use_all(steps);
    }
    if (section == static_cast<int>(Section::kUpdate) && ipu.update_condition) {
      use(*ipu.update_condition);
      ++step;
    }
    use_all(ipu.sections[section]);
    if (section != static_cast<int>(Section::kSetup)) continue;
    for (const LoweredStep& each : ipu.sections[section]) {
      for (uint32_t tensor : TensorsOf(each.instruction))
        whole_run[ipu.tensors[tensor].storage] = true;
    }
  }
  for (uint32_t id = 0; id < storages.size(); ++id) {
    if (whole_run[id])
      storages[id].first = 0, storages[id].last = step;
    else if (!seen[id])
      storages[id].bytes = 0;
  }
  return storages;
}

}  // namespace

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

MemoryPlan PlanMemory(LoweredIpu& ipu, const std::map<std::string, uint64_t>& variables,
                      uint64_t base) {
  std::vector<Storage> storages = Lifetimes(ipu);
  std::map<uint32_t, uint64_t> persistent;  // storages, with their offsets
  for (const LoweredTensor& tensor : ipu.tensors) {
    if (!tensor.variable.empty()) persistent[tensor.storage] = variables.at(tensor.variable);
  }
  std::vector<Storage> temporaries;
  for (uint32_t id = 0; id < storages.size(); ++id) {
    if (!persistent.contains(id)) temporaries.push_back(storages[id]);
  }
  MemoryPlan plan;
  plan.end = PlaceStorage(temporaries, base);
  auto temporary = temporaries.begin();
  for (uint32_t id = 0; id < storages.size(); ++id) {
    const auto found = persistent.find(id);
    storages[id].offset = found == persistent.end() ? (temporary++)->offset : found->second;
  }
  for (const LoweredTensor& tensor : ipu.tensors)
    plan.offsets.push_back(storages[tensor.storage].offset + tensor.offset);
  return plan;
}

}  // namespace vpod::compiler
