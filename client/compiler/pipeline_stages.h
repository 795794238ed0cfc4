// The stages of a pipeline, and the positions of their parts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/compiler/graph_program.h"

namespace vpod::compiler {

// Whether a graph has no stages: then each IPU is one.
bool StagesAreIpus(const graph::Graph& graph);

class PipelineStages {
 public:
  // Stages as the graph has them, or, if it has none, one for each IPU. InvalidArgument: a stage
  // without operations, or with some on several IPUs.
  static absl::StatusOr<PipelineStages> Find(const GraphProgram& program, Schedule schedule);

  uint32_t stages() const { return static_cast<uint32_t>(ipus_.size()); }
  // Positions are 0 … positions() - 1: the forward parts, then the backward ones from the last
  // stage to the first.
  uint32_t positions() const { return positions_; }
  // Ticks from one micro-batch to the next.
  uint32_t period() const { return period_; }

  uint32_t StageOf(const program::v1::Origin& origin, uint32_t ipu) const {
    return by_ipu_ ? ipu : origin.stage();
  }
  // The position of an operation on an IPU; none if it belongs to an update, or to a stage of
  // another IPU, for which it prepares something.
  std::optional<uint32_t> PositionOf(const program::v1::Origin& origin, uint32_t ipu) const;

 private:
  std::vector<uint32_t> ipus_;  // of the stages
  bool by_ipu_ = true;          // stages are numbered like the IPUs
  bool shares_last_ = true;     // the last stage's parts have the same position
  uint32_t positions_ = 1, period_ = 1;
};

}  // namespace vpod::compiler
