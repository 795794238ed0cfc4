#include "client/poptorch/marks.h"

#include <utility>

namespace vpod::poptorch {
namespace {

constexpr int kHalf = 5;  // PyTorch's ScalarType

program::v1::ProductPlan* PlanOf(graph::Node& node) {
  program::v1::Instruction& op = node.instruction;
  if (op.has_mat_mul()) return op.mutable_mat_mul()->mutable_plan();
  return op.has_convolution() ? op.mutable_convolution()->mutable_plan() : nullptr;
}

}  // namespace

void Marks::ReadTape() {
  for (const auto& [value, share] : tape_.available_memory) shares_[value] = share;
  for (const auto& [value, type] : tape_.partials)
    partials_[value] = type == kHalf ? program::v1::FLOAT16 : program::v1::FLOAT32;
  if (!tape_.recomputed.empty()) spans_.emplace(tape_);
}

void Marks::AddNodes(size_t record, size_t first_node, const graph::Graph& graph) {
  const size_t end = graph.nodes().size();
  for (ValueId output : tape_.records[record].outputs) {
    const auto share = shares_.find(output);
    for (size_t node = first_node; share != shares_.end() && node < end; ++node)
      share_of_[node] = share->second;
    const auto partials = partials_.find(output);
    for (size_t node = first_node; partials != partials_.end() && node < end; ++node)
      partial_of_[node] = partials->second;
  }
  if (!spans_ || spans_->Of(record) >= 0) return;
  for (size_t node = first_node; node < end; ++node) {
    const auto& made = graph.nodes()[node].instruction.outputs();
    outside_spans_.insert(outside_spans_.end(), made.begin(), made.end());
  }
}

void Marks::SetProductPlans(graph::Graph& graph) const {
  if (share_of_.empty() && partial_of_.empty()) return;
  std::vector<graph::Node> nodes = graph.nodes();
  for (const auto& [number, share] : share_of_) {
    if (auto* plan = PlanOf(nodes[number])) plan->set_memory_proportion(share);
  }
  for (const auto& [number, type] : partial_of_) {
    // Partial results of other types than float16 are float32.
    const auto& inputs = nodes[number].instruction.inputs();
    if (inputs.empty() || graph.values()[inputs[0]].type.type != program::v1::FLOAT16) continue;
    if (auto* plan = PlanOf(nodes[number])) plan->set_partials(type);
  }
  graph.SetNodes(std::move(nodes));
}

}  // namespace vpod::poptorch
