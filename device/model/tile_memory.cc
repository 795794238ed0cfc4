#include "device/model/tile_memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

using enum MemoryCategory;
using program::v1::Instruction;

constexpr uint32_t kTiles = arch::kTilesPerIpu;

// Bytes on each tile, of things that lie on neighbouring tiles.
class TileSums {
 public:
  void Add(PlanContext::Span span, int64_t bytes) {
    for (uint32_t i = 0; i < span.tiles; ++i) sums_[(span.first + i) % kTiles] += bytes;
  }
  const std::array<int64_t, kTiles>& sums() const { return sums_; }

 private:
  std::array<int64_t, kTiles> sums_ = {};
};

uint64_t CodeBytes(Vertex vertex) {
  switch (vertex) {
    case Vertex::kConvolution:
      return arch::kConvolutionVertexCodeBytes;
    case Vertex::kReduction:
      return arch::kReduceVertexCodeBytes;
    default:
      return arch::kOtherVertexCodeBytes;
  }
}

// Code and state of the instructions. Instructions that are planned alike share all of it, as the
// layers of a model do; those of one kind share the code of their vertices (F5).
class Code {
 public:
  explicit Code(const PlanContext& context, std::vector<TileMemory>& tiles)
      : context_(context), tiles_(tiles) {}

  void Add(const Instruction& instruction) {
    if (!planned_.insert(context_.KeyOf(instruction)).second) return;
    // A vertex depends on the element type of its operands, and not on their shapes.
    std::string kind = std::to_string(instruction.attributes_case());
    if (instruction.has_unary()) kind += std::to_string(instruction.unary().operator_()) + "u";
    if (instruction.has_binary()) kind += std::to_string(instruction.binary().operator_()) + "b";
    if (instruction.inputs_size() > 0)
      kind += "." + std::to_string(context_.Type(instruction.inputs(0)).type);
    for (const PlanStep& step : Plan(instruction, context_).steps) {
      if (IsProgramStep(step)) AddToAll(kControlCode, arch::kControlBytesPerStep);
      if (const auto* set = std::get_if<ComputeSet>(&step.work)) {
        AddSet(*set, kind);
      } else if (const auto* exchange = std::get_if<TileExchange>(&step.work)) {
        AddExchange(*exchange);
      }
    }
  }

 private:
  void AddToAll(MemoryCategory category, uint64_t bytes) {
    for (TileMemory& tile : tiles_) tile[category] += bytes;
  }

  void AddSet(const ComputeSet& set, const std::string& kind) {
    uint32_t tile = 0;
    for (const TileWork& work : set.classes) {
      const bool first = vertices_.insert({work.vertex, kind}).second;
      for (uint32_t i = 0; i < work.tiles && tile < kTiles; ++i, ++tile)
        tiles_[tile][kVertexState] += work.state_bytes;
      // Vertices of one kind share their code.
      if (first) AddToAll(kVertexCode, CodeBytes(work.vertex));
    }
  }

  void AddExchange(const TileExchange& exchange) {
    uint32_t tile = 0;
    for (const TileTraffic& traffic : exchange.classes) {
      const uint64_t bytes =
          traffic.fragments * arch::kExchangeBytesPerFragment +
          CeilDiv(traffic.sent_bytes, arch::kBytesOfASend) * arch::kExchangeBytesPerSend;
      for (uint32_t i = 0; i < traffic.tiles && tile < kTiles; ++i, ++tile)
        tiles_[tile][kExchangeCode] += bytes;
    }
  }

  const PlanContext& context_;
  std::vector<TileMemory>& tiles_;
  std::set<std::string> planned_;
  std::set<std::pair<Vertex, std::string>> vertices_;
};

// Bytes that an instruction needs while it runs on the tile that needs most: what it receives, and
// partial results. They are taken to be needed on all tiles.
uint64_t TemporaryBytes(const TilePlan& plan) {
  uint64_t received = 0;
  for (const PlanStep& step : plan.steps) {
    const auto* exchange = std::get_if<TileExchange>(&step.work);
    if (exchange == nullptr) continue;
    for (const TileTraffic& traffic : exchange->classes)
      received = std::max(received, traffic.bytes);
  }
  return received + plan.partial_bytes;
}

class Planner {
 public:
  Planner(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology)
      : text_(executable.ipus(static_cast<int>(ipu))), context_(executable, ipu, topology) {
    memory_.tiles.resize(kTiles);
    memory_.liveness = LivenessOf(executable, ipu);
  }

  IpuMemory Run() {
    AddAlwaysLive();
    Code code(context_, memory_.tiles);
    for (const auto& function : text_.functions()) {
      for (const Instruction& instruction : function.instructions()) code.Add(instruction);
    }
    for (TileMemory& tile : memory_.tiles) tile[kStack] = arch::kReservedTileBytes;
    memory_.temporary_bytes.resize(memory_.liveness.programs.size());
    for (uint32_t program = 0; program < memory_.liveness.programs.size(); ++program) Walk(program);
    const auto fullest = std::max_element(
        memory_.tiles.begin(), memory_.tiles.end(),
        [](const TileMemory& a, const TileMemory& b) { return a.total() < b.total(); });
    memory_.fullest = static_cast<uint32_t>(fullest - memory_.tiles.begin());
    std::tie(memory_.program, memory_.step) = peaks_[memory_.fullest];
    return std::move(memory_);
  }

 private:
  void AddAlwaysLive() {
    TileSums sums;
    for (uint32_t tensor : memory_.liveness.always_live) Add(sums, tensor, 1);
    for (uint32_t tile = 0; tile < kTiles; ++tile)
      memory_.tiles[tile][kAlwaysLive] = static_cast<uint64_t>(sums.sums()[tile]);
  }

  void Add(TileSums& sums, uint32_t tensor, int64_t sign) const {
    const PlanContext::Span span = context_.SpanOf(tensor);
    sums.Add(span, sign * static_cast<int64_t>(BytesPerTile(context_.Type(tensor), span.tiles)));
  }

  uint64_t TemporaryBytesOf(InstructionPlace place) {
    const auto [it, added] = temporary_.try_emplace({place.function, place.index});
    if (added) {
      const auto& function = text_.functions(static_cast<int>(place.function));
      it->second =
          TemporaryBytes(Plan(function.instructions(static_cast<int>(place.index)), context_));
    }
    return it->second;
  }

  // Follows the values of a program through its steps.
  void Walk(uint32_t program) {
    const ProgramLiveness& liveness = memory_.liveness.programs[program];
    std::vector<std::vector<uint32_t>> ending(liveness.steps.size());
    for (const LiveValue& value : liveness.values) ending[value.last].push_back(value.tensor);
    TileSums live;
    auto next = liveness.values.begin();
    for (uint32_t step = 0; step < liveness.steps.size(); ++step) {
      for (; next != liveness.values.end() && next->first == step; ++next)
        Add(live, next->tensor, 1);
      const uint64_t temporary = TemporaryBytesOf(liveness.steps[step]);
      memory_.temporary_bytes[program].push_back(temporary);
      Take(live, temporary, program, step);
      for (uint32_t tensor : ending[step]) Add(live, tensor, -1);
    }
  }

  void Take(const TileSums& live, uint64_t temporary, uint32_t program, uint32_t step) {
    for (uint32_t tile = 0; tile < kTiles; ++tile) {
      const uint64_t bytes = static_cast<uint64_t>(live.sums()[tile]) + temporary;
      uint64_t& most = memory_.tiles[tile][kNotAlwaysLive];
      if (bytes <= most) continue;
      most = bytes;
      peaks_[tile] = {program, step};
    }
  }

  const program::v1::Ipu& text_;
  const PlanContext context_;
  IpuMemory memory_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> temporary_;   // by place of the instruction
  std::array<std::pair<uint32_t, uint32_t>, kTiles> peaks_ = {};  // (program, step) by tile
};

}  // namespace

absl::string_view Name(MemoryCategory category) {
  switch (category) {
    case kAlwaysLive:
      return "always live";
    case kNotAlwaysLive:
      return "not always live";
    case kVertexCode:
      return "vertex code";
    case kVertexState:
      return "vertex state";
    case kExchangeCode:
      return "exchange code";
    case kControlCode:
      return "control code";
    default:
      return "stacks";
  }
}

// Pieces begin at multiples of eight bytes.
uint64_t BytesPerTile(const program::TensorType& type, uint32_t tiles) {
  return (CeilDiv(type.bytes(), tiles) + 7) / 8 * 8;
}

uint64_t TileMemory::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

uint64_t IpuMemory::total() const {
  return std::accumulate(tiles.begin(), tiles.end(), uint64_t{0},
                         [](uint64_t sum, const TileMemory& tile) { return sum + tile.total(); });
}

std::vector<TileTensor> OnFullestTile(const IpuMemory& memory, const PlanContext& context) {
  std::vector<TileTensor> found;
  const auto add = [&](uint32_t tensor, const LiveValue* value) {
    const PlanContext::Span span = context.SpanOf(tensor);
    if ((memory.fullest + kTiles - span.first) % kTiles < span.tiles)
      found.push_back({tensor, BytesPerTile(context.Type(tensor), span.tiles), value});
  };
  for (uint32_t tensor : memory.liveness.always_live) add(tensor, nullptr);
  if (memory.program >= memory.liveness.programs.size()) return found;
  for (const LiveValue& value : memory.liveness.programs[memory.program].values) {
    if (value.first <= memory.step && memory.step <= value.last) add(value.tensor, &value);
  }
  return found;
}

IpuMemory PlanMemory(const program::v1::Executable& executable, uint32_t ipu,
                     const Topology& topology) {
  return Planner(executable, ipu, topology).Run();
}

}  // namespace vpod::model
