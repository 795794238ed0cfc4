#include "client/compiler/in_place.h"

#include <algorithm>

#include "device/program/op.h"

namespace vpod::compiler {

using graph::Node;

InPlace::InPlace(const GraphProgram& program, const Placement& placement)
    : graph_(program.graph), results_(ResultsOf(program)), placement_(placement) {
  const std::vector<Node>& nodes = graph_.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (uint32_t id : nodes[i].instruction.inputs()) last_readers_[graph_.RootOf(id)] = i;
  }
  FindValuesMadeInBuffers();
}

std::optional<uint32_t> InPlace::BufferOf(uint32_t value) const {
  const auto buffer = buffers_.find(value);
  return buffer == buffers_.end() ? std::nullopt : std::optional(buffer->second);
}

bool InPlace::MayUpdate(const Node& node, size_t number,
                        const program::v1::Instruction& lowered) const {
  if (BufferOf(node.instruction.outputs(0))) return false;
  const uint32_t updated = lowered.inputs(0);
  const LoweredTensor& tensor = placement_.TensorAt(node.ipu, updated);
  const uint32_t storage = tensor.storage;
  if (tensor.offset != 0 || !placement_.OrderOf(node.ipu, updated)) return false;
  for (int i = 1; i < lowered.inputs_size(); ++i) {
    if (placement_.TensorAt(node.ipu, lowered.inputs(i)).storage == storage) return false;
  }
  const std::vector<uint32_t> values = placement_.ValuesIn(node.ipu, storage);
  return std::all_of(values.begin(), values.end(), [&](uint32_t value) {
    const uint32_t root = graph_.RootOf(value);
    const auto reader = last_readers_.find(root);
    return graph_.values()[root].origin == graph::Origin::kOperation && !results_.contains(root) &&
           (reader == last_readers_.end() || reader->second <= number);
  });
}

void InPlace::FindValuesMadeInBuffers() {
  const std::vector<Node>& nodes = graph_.nodes();
  std::map<uint32_t, size_t> producers;  // by value
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (uint32_t id : nodes[i].instruction.outputs()) producers[id] = i;
  }
  std::set<uint32_t> sent;  // what is read after all nodes
  for (const auto& output : graph_.outputs()) sent.insert(graph_.RootOf(output.value.id));
  for (const auto& [variable, value, when] : graph_.assignments()) {
    const uint32_t root = graph_.RootOf(value.id);
    if (graph_.values()[root].origin == graph::Origin::kVariable) sent.insert(root);
  }
  for (const auto& [variable, value, when] : graph_.assignments()) {
    const auto producer = producers.find(value.id);
    if (producer == producers.end() || last_readers_.contains(value.id) ||
        sent.contains(value.id) || sent.contains(variable.id))
      continue;
    const Node& node = nodes[producer->second];
    const auto reader = last_readers_.find(variable.id);
    const bool free = reader == last_readers_.end() || reader->second <= producer->second;
    if (free && WritesOverItsInput(node, variable.id) &&
        node.ipu == graph_.values()[variable.id].ipu)
      buffers_[value.id] = variable.id;
  }
}

// Whether the output may lie over a buffer that the node itself may read.
bool InPlace::WritesOverItsInput(const Node& node, uint32_t buffer) const {
  const program::OpDef& op = *program::FindOp(node.instruction.attributes_case());
  if (op.elementwise || node.instruction.has_map()) return true;
  // What is assigned is row-major.
  if (op.layout != nullptr &&
      op.layout(node.instruction, {true, 0}) == program::Layout::kChannelsLast)
    return false;
  const auto& inputs = node.instruction.inputs();
  return op.updates && std::none_of(inputs.begin() + 1, inputs.end(),
                                    [&](uint32_t id) { return graph_.RootOf(id) == buffer; });
}

}  // namespace vpod::compiler
