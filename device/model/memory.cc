// Whether an executable fits the tiles, and what to say if it does not.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/model/memory_advice.h"
#include "device/model/plan_context.h"
#include "device/model/tile_memory.h"
#include "device/program/origins.h"

namespace vpod::model {
namespace {

constexpr size_t kShown = 5;  // of the fullest tiles and of the largest values

// The contents of a tile when most of it is in use, by name.
class Contents {
 public:
  Contents(const program::Executable& executable, uint32_t ipu, const IpuMemory& memory,
           const PlanContext& context)
      : executable_(executable), ipu_(ipu), memory_(memory), context_(context) {
    for (const TileTensor& on_tile : OnFullestTile(memory, context)) {
      bytes_[on_tile.value == nullptr ? VariableName(on_tile.tensor) : ValueName(*on_tile.value)] +=
          on_tile.bytes;
    }
  }

  // "'layer1.conv.weight' (1024 bytes)", the largest first.
  std::string Largest() const {
    std::vector<std::pair<std::string, uint64_t>> sizes(bytes_.begin(), bytes_.end());
    const size_t shown = std::min(kShown, sizes.size());
    std::partial_sort(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(shown), sizes.end(),
                      [](const auto& a, const auto& b) { return a.second > b.second; });
    sizes.resize(shown);
    return absl::StrJoin(sizes, ", ", [](std::string* out, const auto& size) {
      absl::StrAppend(out, size.first, " (", size.second, " bytes)");
    });
  }
  // "at batch_norm 'bn1' of program 'train'"
  std::string When() const {
    if (memory_.program >= memory_.liveness.programs.size()) return "at any time";
    const ProgramLiveness& program = memory_.liveness.programs[memory_.program];
    if (program.steps.empty()) return "at any time";
    return absl::StrCat("at ", InstructionName(program.steps[memory_.step]), " of program '",
                        executable_.proto().programs(static_cast<int>(memory_.program)).name(),
                        "'");
  }

 private:
  std::string VariableName(uint32_t tensor) const {
    for (const auto& variable : executable_.proto().variables()) {
      if (variable.ipu() == ipu_ && variable.tensor() == tensor)
        return absl::StrCat("'", variable.name(), "'");
    }
    return context_.Type(tensor).ToString();
  }
  const program::v1::Ipu& text() const { return executable_.proto().ipus(static_cast<int>(ipu_)); }
  const program::v1::Instruction& InstructionAt(InstructionPlace place) const {
    return text()
        .functions(static_cast<int>(place.function))
        .instructions(static_cast<int>(place.index));
  }
  std::string InstructionName(InstructionPlace place) const {
    return program::NameOf(InstructionAt(place),
                           executable_.OriginOf(ipu_, place.function, place.index));
  }
  std::string ValueName(const LiveValue& live) const {
    const InstructionPlace maker = memory_.liveness.programs[memory_.program].steps[live.maker];
    const auto& value = text().tensors(static_cast<int>(live.tensor));
    return absl::StrCat(
        value.wide_accumulator() ? "the " : "the result of ",
        program::NameOfValue(value, InstructionAt(maker),
                             executable_.OriginOf(ipu_, maker.function, maker.index)));
  }

  const program::Executable& executable_;
  const uint32_t ipu_;
  const IpuMemory& memory_;
  const PlanContext& context_;
  std::map<std::string, uint64_t> bytes_;
};

std::string FullestTiles(const IpuMemory& memory) {
  std::vector<uint32_t> tiles(memory.tiles.size());
  std::iota(tiles.begin(), tiles.end(), 0);
  std::partial_sort(
      tiles.begin(), tiles.begin() + kShown, tiles.end(), [&](uint32_t a, uint32_t b) {
        return std::pair(memory.tiles[b].total(), a) < std::pair(memory.tiles[a].total(), b);
      });
  tiles.resize(kShown);
  return absl::StrJoin(tiles, ", ", [&](std::string* out, uint32_t tile) {
    absl::StrAppend(out, tile, " (", memory.tiles[tile].total(), ")");
  });
}

uint64_t FullestBytes(const IpuMemory& memory) { return memory.tiles[memory.fullest].total(); }

// The contents of the fullest tile of an IPU at the step when most of it is in use.
MemoryInUse InUse(const program::Executable& executable, uint32_t ipu, const IpuMemory& memory,
                  const PlanContext& context) {
  const MemoryContentsOf contents(executable, ipu);
  MemoryInUse in_use{.total = static_cast<double>(FullestBytes(memory))};
  for (const TileTensor& on_tile : OnFullestTile(memory, context)) {
    in_use.Add(on_tile.value == nullptr
                   ? contents.Tensor(on_tile.tensor)
                   : contents.Value(*on_tile.value, memory.liveness.programs[memory.program].steps),
               context.Type(on_tile.tensor).type, static_cast<double>(on_tile.bytes));
  }
  if (memory.program >= memory.liveness.programs.size()) return in_use;
  const ProgramLiveness& program = memory.liveness.programs[memory.program];
  for (const LiveValue& value : program.values) {
    const MemoryContents of_value = contents.Value(value, program.steps);
    const auto bytes = static_cast<double>(context.Type(value.tensor).bytes());
    if (of_value == MemoryContents::kKept) in_use.kept_at_some_time += bytes;
    if (of_value == MemoryContents::kRecomputed) in_use.recomputed_at_some_time += bytes;
  }
  const auto& temporary = memory.temporary_bytes[memory.program];
  if (memory.step < temporary.size())
    in_use.temporary = static_cast<double>(temporary[memory.step]);
  return in_use;
}

// The IPUs of a replica that are too full: the worst of them, and what would help all.
class FullIpus {
 public:
  FullIpus(const program::Executable& executable, const Topology& topology)
      : executable_(executable), topology_(topology), features_(FeaturesOf(executable, topology)) {}

  void Add(uint32_t ipu, IpuMemory memory) {
    ipus_.push_back(ipu);
    const PlanContext context(executable_.proto(), ipu, topology_);
    const std::vector<MemorySaving> savings =
        MemorySavings(features_, ipu, InUse(executable_, ipu, memory, context));
    savings_.insert(savings_.end(), savings.begin(), savings.end());
    if (ipus_.size() > 1 && FullestBytes(memory) <= FullestBytes(memory_)) return;
    worst_ = ipu;
    memory_ = std::move(memory);
  }

  MemoryVerdict ToVerdict() const {
    const PlanContext context(executable_.proto(), worst_, topology_);
    const Contents contents(executable_, worst_, memory_, context);
    return {
        .fits = false,
        .why = absl::StrCat("Out of memory: Cannot fit all variable data onto one or more tiles. ",
                            HowMuchOver(), " Fullest tiles: ", FullestTiles(memory_), ". Tile ",
                            memory_.fullest, " is fullest ", contents.When(),
                            "; its largest variables are ", contents.Largest(), ".", Others()),
        .advice = AdviceOf(savings_)};
  }

 private:
  // "On IPU 1, 3 of 1472 tiles need more than their 638976 bytes, by up to 8 bytes."
  std::string HowMuchOver() const {
    const uint64_t capacity = arch::kTileMemory.value();
    const auto& tiles = memory_.tiles;
    const auto over = std::count_if(tiles.begin(), tiles.end(), [&](const TileMemory& tile) {
      return tile.total() > capacity;
    });
    return absl::StrCat("On IPU ", worst_, ", ", over, " of ", tiles.size(),
                        " tiles need more than their ", capacity, " bytes, by up to ",
                        FullestBytes(memory_) - capacity, " bytes.");
  }

  std::string Others() const {
    std::vector<uint32_t> others = ipus_;
    std::erase(others, worst_);
    return others.empty()
               ? ""
               : absl::StrCat(" Too full as well: IPU ", absl::StrJoin(others, ", "), ".");
  }

  const program::Executable& executable_;
  const Topology& topology_;
  const ProgramFeatures features_;
  std::vector<uint32_t> ipus_;
  std::vector<MemorySaving> savings_;
  uint32_t worst_ = 0;
  IpuMemory memory_;  // of the worst
};

}  // namespace

Bytes MemoryUse(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology) {
  return Bytes(PlanMemory(executable, ipu, topology).total());
}

MemoryVerdict JudgeMemory(const program::Executable& executable, const Topology& topology,
                          std::vector<Bytes>* use) {
  std::optional<FullIpus> full;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    IpuMemory memory = PlanMemory(executable.proto(), ipu, topology);
    if (use != nullptr) use->emplace_back(memory.total());
    if (FullestBytes(memory) <= arch::kTileMemory.value()) continue;
    if (!full) full.emplace(executable, topology);
    full->Add(ipu, std::move(memory));
  }
  return full ? full->ToVerdict() : MemoryVerdict();
}

absl::Status CheckMemory(const program::Executable& executable, const Topology& topology,
                         std::vector<Bytes>* use) {
  const MemoryVerdict verdict = JudgeMemory(executable, topology, use);
  if (verdict.fits) return absl::OkStatus();
  if (const std::string& advice = executable.memory_advice(); !advice.empty())
    return absl::ResourceExhaustedError(absl::StrCat(verdict.why, " ", advice));
  return absl::ResourceExhaustedError(UntriedOutOfMemoryMessage(
      verdict, OptionNamesOf(executable), "only compiling the program tries it"));
}

}  // namespace vpod::model
