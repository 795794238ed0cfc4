#include "client/compiler/pipeline_stages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vpod::compiler {

bool StagesAreIpus(const graph::Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(), [&](const graph::Node& node) {
    return graph.origins().at(node.origin).stage() == 0;
  });
}

absl::StatusOr<PipelineStages> PipelineStages::Find(const GraphProgram& program,
                                                    Schedule schedule) {
  const graph::Graph& graph = program.graph;
  PipelineStages stages;
  stages.by_ipu_ = StagesAreIpus(graph);
  constexpr uint32_t kNone = ~0u;
  constexpr uint32_t kMostStages = 1 << 16;  // far more than any pipeline fills
  const auto wrong = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("program '", program.spec.name, "': ", what...));
  };
  const auto is_gradient = [&](const graph::Node& node) {
    return node.instruction.outputs_size() > 0 &&
           node.instruction.outputs(0) >= program.first_backward;
  };
  for (bool gradients : {false, true}) {
    for (const graph::Node& node : graph.nodes()) {
      if (is_gradient(node) != gradients) continue;
      const uint32_t stage = stages.StageOf(graph.origins().at(node.origin), node.ipu);
      if (stage >= kMostStages)
        return wrong("stage ", stage, " of a pipeline must be 0 to ", kMostStages - 1);
      if (stage >= stages.ipus_.size()) stages.ipus_.resize(stage + 1, kNone);
      uint32_t& ipu = stages.ipus_[stage];
      if (ipu == kNone) ipu = node.ipu;
      // Gradients are added up where their value is, whatever stage they come from.
      if (ipu == node.ipu || gradients) continue;
      return wrong("stage ", stage, " has operations on IPU ", ipu, " and on IPU ", node.ipu,
                   ", must be on one");
    }
  }
  const auto missing = std::find(stages.ipus_.begin(), stages.ipus_.end(), kNone);
  if (missing != stages.ipus_.end()) {
    return wrong("stage ", missing - stages.ipus_.begin(), " of ", stages.ipus_.size(),
                 " has no operations");
  }
  const uint32_t count = std::max<uint32_t>(1, stages.stages());
  stages.shares_last_ = schedule != Schedule::kInterleaved;
  stages.positions_ = !program.trains() ? count : 2 * count - (stages.shares_last_ ? 1 : 0);
  stages.period_ = schedule == Schedule::kSequential                        ? stages.positions_
                   : schedule == Schedule::kInterleaved && program.trains() ? 2
                                                                            : 1;
  return stages;
}

std::optional<uint32_t> PipelineStages::PositionOf(const program::v1::Origin& origin,
                                                   uint32_t ipu) const {
  const uint32_t stage = StageOf(origin, ipu);
  if (stage >= ipus_.size() || ipus_[stage] != ipu) return std::nullopt;
  switch (origin.phase()) {
    case program::v1::Origin::FORWARD:
      return stage;
    case program::v1::Origin::BACKWARD:
    case program::v1::Origin::RECOMPUTE:
      return positions_ - 1 - stage;
    default:
      return std::nullopt;
  }
}

}  // namespace vpod::compiler
