// Everything that the plan of an instruction depends on besides itself: the types of the tensors of
// its IPU, where they lie, and the job.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/model/cost.h"
#include "device/model/map_values.h"
#include "device/model/partition.h"
#include "device/program/executable.h"

namespace vpod::model {

// As many tiles as each get a piece of 128 bytes of a tensor (A poputil).
uint32_t TilesOfPieces(const program::TensorType& type);

// Plans the instructions of one IPU of a valid executable, both of which outlive it. It remembers
// what it has found, so that only one thread may use it at a time.
class PlanContext {
 public:
  PlanContext(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology);

  const program::v1::Executable& executable() const { return executable_; }
  uint32_t ipu() const { return ipu_; }
  const Topology& topology() const { return topology_; }

  program::TensorType Type(uint32_t tensor) const {
    return program::TypeOf(text_.tensors(static_cast<int>(tensor)));
  }
  uint64_t Elements(uint32_t tensor) const {
    return static_cast<uint64_t>(Type(tensor).elements());
  }

  std::vector<MapValue> ValuesOfMap(const program::v1::Instruction& map) const;

  // Whether two tensors lie alike, element by element: results of element-by-element ops and norms
  // lie as the first operand of their shape does (spec/planner.md 5).
  bool LieAlike(uint32_t a, uint32_t b) const { return lies_like_[a] == lies_like_[b]; }
  // Whether an operand of a product or convolution lies as that wants it. Tensors that only the
  // host, fills, updates and casts write are laid out for the first product that reads them, and
  // serve all that equal it.
  bool LiesFor(const program::v1::Instruction& reader, uint32_t tensor) const;
  // The tiles on which a tensor lies evenly: as many as the product has that makes it or for which
  // it is laid out; otherwise as many as get a piece. Where they begin is spread over the IPU.
  struct Span {
    uint32_t first = 0, tiles = 1;
  };
  Span SpanOf(uint32_t tensor) const;
  // The same for products and other instructions that are planned alike, whatever their tensors.
  std::string KeyOf(const program::v1::Instruction& instruction) const;
  // IPUs of a machine that use its memory at the same time as this one, for streams or for remote
  // buffers.
  uint32_t streaming_ipus() const { return streaming_ipus_; }
  uint32_t remote_ipus() const { return remote_ipus_; }

  // The partition of a convolution, a coarse one if the executable has very many of them: searches
  // would take hours.
  const PlannedPartition& PartitionOf(const PlannedConvolution& convolution) const;

 private:
  std::optional<uint32_t> FollowedInput(const program::v1::Instruction& instruction) const;

  const program::v1::Executable& executable_;
  const uint32_t ipu_;
  const program::v1::Ipu& text_;
  const Topology topology_;
  std::vector<uint32_t> lies_like_;        // a tensor that lies like each tensor
  std::vector<std::string> laid_out_for_;  // the product for which each tensor is, or empty
  // The product that makes a tensor or for which it is laid out.
  std::vector<const program::v1::Instruction*> product_of_;
  mutable std::map<uint32_t, Span> spans_;
  uint32_t streaming_ipus_, remote_ipus_;
  mutable std::map<PlannedConvolution, PlannedPartition> partitions_;
};

}  // namespace vpod::model
