#include "device/model/plan_context.h"

#include <algorithm>
#include <numeric>

#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

using program::v1::Instruction;

bool IsProduct(const Instruction& instruction) {
  return instruction.has_mat_mul() || instruction.has_convolution();
}

bool Streams(const Instruction& instruction) {
  return instruction.has_stream_in() || instruction.has_stream_out();
}
bool UsesRemoteBuffers(const Instruction& instruction) {
  return instruction.has_remote_load() || instruction.has_remote_store();
}

bool Has(const program::v1::Ipu& text, bool (*kind)(const Instruction&)) {
  for (const auto& function : text.functions()) {
    if (std::any_of(function.instructions().begin(), function.instructions().end(), kind))
      return true;
  }
  return false;
}

// The IPUs of the machine of `ipu` that have such instructions, in all replicas, which execute them
// at the same time.
uint32_t IpusWith(bool (*kind)(const Instruction&), const program::v1::Executable& executable,
                  uint32_t ipu, const Topology& topology) {
  const uint32_t ipus = topology.ipus_per_replica;
  const uint32_t first = ipu / arch::kIpusPerMachine * arch::kIpusPerMachine;
  uint32_t busy = 0;
  const auto last =
      std::min(static_cast<uint32_t>(executable.ipus_size()), first + arch::kIpusPerMachine);
  for (uint32_t i = first; i < last; ++i) busy += Has(executable.ipus(static_cast<int>(i)), kind);
  const uint32_t replicas =
      std::min(std::max(arch::kIpusPerMachine / ipus, 1u), topology.num_replicas);
  return std::max(1u, busy * replicas);
}

}  // namespace

uint32_t TilesOfPieces(const program::TensorType& type) {
  constexpr uint64_t kBytesOfAPiece = 128;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(CeilDiv(type.bytes(), kBytesOfAPiece), 1, arch::kTilesPerIpu));
}

std::string PlanContext::KeyOf(const Instruction& instruction) const {
  Instruction attributes = instruction;
  attributes.clear_inputs();
  attributes.clear_outputs();
  attributes.clear_rounding();
  std::string key = attributes.SerializeAsString();
  for (uint32_t input : instruction.inputs()) key += Type(input).ToString();
  return key;
}

PlanContext::PlanContext(const program::v1::Executable& executable, uint32_t ipu,
                         const Topology& topology)
    : executable_(executable),
      ipu_(ipu),
      text_(executable.ipus(static_cast<int>(ipu))),
      topology_(topology),
      lies_like_(static_cast<size_t>(text_.tensors_size())),
      laid_out_for_(lies_like_.size()),
      product_of_(lies_like_.size()),
      streaming_ipus_(IpusWith(Streams, executable, ipu, topology)),
      remote_ipus_(IpusWith(UsesRemoteBuffers, executable, ipu, topology)) {
  std::iota(lies_like_.begin(), lies_like_.end(), 0);
  std::vector<bool> moves(lies_like_.size());
  for (const auto& function : text_.functions()) {
    for (const Instruction& instruction : function.instructions()) {
      const ResultsLie results = FindPlan(instruction.attributes_case())->results;
      const std::optional<uint32_t> followed =
          results == ResultsLie::kLikeOperand ? FollowedInput(instruction) : std::nullopt;
      if (followed) {
        lies_like_[instruction.outputs(0)] = lies_like_[*followed];
      } else if (results != ResultsLie::kInPlace) {
        for (uint32_t output : instruction.outputs()) moves[output] = true;
        if (IsProduct(instruction)) product_of_[instruction.outputs(0)] = &instruction;
      }
    }
  }
  for (const auto& function : text_.functions()) {
    for (const Instruction& instruction : function.instructions()) {
      if (!IsProduct(instruction)) continue;
      for (uint32_t input : instruction.inputs()) {
        const uint32_t root = lies_like_[input];
        if (moves[root] || product_of_[root] != nullptr) continue;
        laid_out_for_[root] = KeyOf(instruction);
        product_of_[root] = &instruction;
      }
    }
  }
}

std::vector<MapValue> PlanContext::ValuesOfMap(const Instruction& map) const {
  std::vector<program::TensorType> inputs;
  for (uint32_t input : map.inputs()) inputs.push_back(Type(input));
  return ValuesOf(map, inputs);
}

// The input whose place a result has, if it has that of an operand.
std::optional<uint32_t> PlanContext::FollowedInput(const Instruction& instruction) const {
  const auto& inputs = instruction.inputs();
  if (instruction.has_map()) {
    const uint32_t place = ValuesOfMap(instruction).back().lies_like;
    return place < static_cast<uint32_t>(inputs.size())
               ? std::optional(inputs[static_cast<int>(place)])
               : std::nullopt;
  }
  const program::Dims dims = Type(instruction.outputs(0)).dims;
  const auto followed = std::find_if(inputs.begin(), inputs.end(),
                                     [&](uint32_t input) { return Type(input).dims == dims; });
  return followed == inputs.end() ? std::nullopt : std::optional(*followed);
}

bool PlanContext::LiesFor(const Instruction& reader, uint32_t tensor) const {
  const std::string& product = laid_out_for_[lies_like_[tensor]];
  return !product.empty() && product == KeyOf(reader);
}

PlanContext::Span PlanContext::SpanOf(uint32_t tensor) const {
  const uint32_t root = lies_like_[tensor];
  const auto [it, added] = spans_.try_emplace(root);
  Span& span = it->second;
  if (!added) return span;
  if (product_of_[root] != nullptr) span.tiles = Plan(*product_of_[root], *this).result_tiles;
  if (product_of_[root] == nullptr || span.tiles == 0) {
    span.tiles = TilesOfPieces(Type(root));
  }
  // Multiples of the golden ratio are spread evenly.
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  span.first = static_cast<uint32_t>((root * kGoldenRatio >> 32) % arch::kTilesPerIpu);
  return span;
}

const PlannedPartition& PlanContext::PartitionOf(const PlannedConvolution& convolution) const {
  const size_t most_searches = std::max(64u, 512 / topology_.ipus_per_replica);
  const auto it = partitions_.find(convolution);
  if (it != partitions_.end()) return it->second;
  const bool coarse = partitions_.size() >= most_searches;
  return partitions_[convolution] =
             coarse ? FindCoarsePartition(convolution) : FindPartition(convolution);
}

}  // namespace vpod::model
