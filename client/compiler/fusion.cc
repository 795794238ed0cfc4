#include "client/compiler/fusion.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "device/program/activations.h"
#include "device/program/op.h"
#include "device/program/ops/map.h"

namespace vpod::compiler {
namespace {

using graph::Node;
using graph::Value;
using program::v1::Instruction;
using program::v1::UnaryOperator;

constexpr UnaryOperator kNone = program::v1::UNARY_OPERATOR_UNSPECIFIED;

bool IsUnary(const Node& node, UnaryOperator function) {
  return node.instruction.has_unary() && node.instruction.unary().operator_() == function;
}
// The activation whose gradient a node is.
UnaryOperator ActivationOfGradient(const Node& node) {
  if (!node.instruction.has_binary()) return kNone;
  for (const UnaryOperator activation : program::kActivations) {
    if (node.instruction.binary().operator_() == program::GradientOf(activation)) return activation;
  }
  return kNone;
}
bool IsBinary(const Node& node, program::v1::BinaryOperator function) {
  return node.instruction.has_binary() && node.instruction.binary().operator_() == function;
}

class Fusion {
 public:
  explicit Fusion(const GraphProgram& program)
      : graph_(program.graph),
        nodes_(graph_.nodes()),
        fused_(nodes_.size()),
        results_(ResultsOf(program)),
        first_backward_(program.first_backward) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (uint32_t value : nodes_[i].instruction.outputs()) producers_[value] = i;
      for (uint32_t& value : *nodes_[i].instruction.mutable_inputs()) {
        value = Original(value);
        Use(value, i);
      }
    }
    FindRemoteOrder();
  }

  std::vector<Node> Run() {
    // Gradients come first: they may leave the output of a batch norm to its activation alone.
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].instruction.has_batch_norm_gradient()) FuseGradient(i);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (fused_[i]) continue;
      Instruction& instruction = nodes_[i].instruction;
      if (instruction.has_batch_norm()) FuseForward(i, *instruction.mutable_batch_norm());
      if (instruction.has_batch_norm_inference())
        FuseForward(i, *instruction.mutable_batch_norm_inference());
    }
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (!fused_[i] && IsElementwise(nodes_[i])) FuseMap(i);
    }
    return InOrder();
  }

 private:
  const Value& ValueOf(uint32_t id) const { return graph_.values()[id]; }

  // Returns the first value of the same type in the chain of aliases. Once the gradients have been
  // added, a stop or a pass-by is the value that it is an alias of.
  uint32_t Original(uint32_t value) const {
    uint32_t original = value;
    for (uint32_t id = ValueOf(value).alias_of; id != ~0u; id = ValueOf(id).alias_of) {
      if (ValueOf(id).type == ValueOf(value).type) original = id;
    }
    return original;
  }

  void Use(uint32_t value, size_t node) {
    uses_[value].push_back(node);
    // A node that reads a reshape reads the whole value.
    for (uint32_t id = value; ValueOf(id).alias_of != ~0u;) {
      id = ValueOf(id).alias_of;
      aliased_.insert(id);
    }
  }

  // Whether others than the uses read a value.
  bool EscapesFrom(uint32_t value) const {
    return results_.contains(value) || aliased_.contains(value);
  }

  // The node that alone reads a value; null if there is another reader, or it is on another IPU.
  const Node* OnlyReader(uint32_t value, uint32_t ipu, size_t* index) const {
    const auto uses = uses_.find(value);
    if (uses == uses_.end() || uses->second.size() != 1 || EscapesFrom(value)) return nullptr;
    *index = uses->second[0];
    return nodes_[*index].ipu == ipu ? &nodes_[*index] : nullptr;
  }

  // The node that makes a value; null if none does.
  const Node* Producer(uint32_t value, size_t* index) const {
    const auto producer = producers_.find(value);
    if (producer == producers_.end()) return nullptr;
    *index = producer->second;
    return &nodes_[*index];
  }

  // Loads and stores of a remote buffer keep their order: each comes after the one before.
  void FindRemoteOrder() {
    before_.resize(nodes_.size());
    std::map<std::pair<uint32_t, uint32_t>, size_t> last;  // of (IPU, buffer)
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Instruction& instruction = nodes_[i].instruction;
      if (!instruction.has_remote_load() && !instruction.has_remote_store()) continue;
      const uint32_t buffer = instruction.has_remote_load() ? instruction.remote_load().buffer()
                                                            : instruction.remote_store().buffer();
      const auto [it, is_first] = last.try_emplace({nodes_[i].ipu, buffer}, i);
      if (!is_first) before_[i] = std::exchange(it->second, i);
    }
  }

  bool DependsOn(uint32_t value, size_t node) const {
    std::vector<size_t> pending;
    std::set<size_t> seen;
    const auto add = [&](uint32_t id) {
      const auto producer = producers_.find(graph_.RootOf(id));
      if (producer != producers_.end()) pending.push_back(producer->second);
    };
    add(value);
    while (!pending.empty()) {
      const size_t index = pending.back();
      pending.pop_back();
      if (!seen.insert(index).second) continue;
      if (index == node) return true;
      for (uint32_t id : nodes_[index].instruction.inputs()) add(id);
      if (before_[index]) pending.push_back(*before_[index]);
    }
    return false;
  }

  // y of a batch norm goes through an addition, an activation or both.
  template <class Op>
  void FuseForward(size_t i, Op& op) {
    Instruction& norm = nodes_[i].instruction;
    const auto take_over = [&](size_t reader) {
      norm.set_outputs(0, nodes_[reader].instruction.outputs(0));
      producers_[norm.outputs(0)] = i;
      fused_[reader] = true;
    };
    size_t index = 0;
    const Node* reader = OnlyReader(norm.outputs(0), nodes_[i].ipu, &index);
    if (reader != nullptr && IsBinary(*reader, program::v1::ADD)) {
      const bool first = reader->instruction.inputs(0) == norm.outputs(0);
      const uint32_t addend = reader->instruction.inputs(first ? 1 : 0);
      if (ValueOf(addend).type == ValueOf(norm.outputs(0)).type && !DependsOn(addend, i)) {
        op.set_add(true);
        norm.add_inputs(addend);
        take_over(index);
        MoveUse(addend, index, i);
        reader = OnlyReader(norm.outputs(0), nodes_[i].ipu, &index);
      }
    }
    if (reader != nullptr && reader->instruction.has_unary() &&
        program::IsActivation(reader->instruction.unary().operator_())) {
      op.set_activation(reader->instruction.unary().operator_());
      take_over(index);
    }
  }

  // The offset of the batch norm of which `norm` is the gradient, if its y, or what a RELU or RELU6
  // makes of that, is `activated`.
  std::optional<uint32_t> OffsetOfActivated(const Instruction& norm, uint32_t activated,
                                            UnaryOperator activation) const {
    size_t index = 0;
    const Node* forward = Producer(norm.inputs(3), &index);
    if (forward == nullptr || !forward->instruction.has_batch_norm()) return std::nullopt;
    const Instruction& op = forward->instruction;
    const bool alike = op.inputs(0) == norm.inputs(0) && op.inputs(1) == norm.inputs(2) &&
                       op.outputs(1) == norm.inputs(3) && op.outputs(2) == norm.inputs(4) &&
                       op.batch_norm().epsilon() == norm.batch_norm_gradient().epsilon();
    if (!alike) return std::nullopt;
    if (activated == op.outputs(0)) return op.inputs(2);
    const Node* function = Producer(activated, &index);
    const bool is_result = activation != program::v1::SILU && function != nullptr &&
                           IsUnary(*function, activation) &&
                           function->instruction.inputs(0) == op.outputs(0);
    return is_result ? std::optional(op.inputs(2)) : std::nullopt;
  }

  // The gradient of y comes through that of an activation and a sum.
  void FuseGradient(size_t i) {
    Instruction& norm = nodes_[i].instruction;
    auto& op = *norm.mutable_batch_norm_gradient();
    std::optional<uint32_t> last;  // input, of the activation
    size_t index = 0;
    const Node* producer = Producer(norm.inputs(1), &index);
    const auto fits = [&] {
      return producer != nullptr && producer->ipu == nodes_[i].ipu &&
             ValueOf(producer->instruction.inputs(0)).type == ValueOf(norm.inputs(0)).type &&
             ValueOf(producer->instruction.inputs(1)).type == ValueOf(norm.inputs(0)).type;
    };
    const UnaryOperator activation = producer == nullptr ? kNone : ActivationOfGradient(*producer);
    const auto offset = activation == kNone || !fits()
                            ? std::nullopt
                            : OffsetOfActivated(norm, producer->instruction.inputs(0), activation);
    if (activation != kNone && fits() && (offset || activation != program::v1::SILU)) {
      const uint32_t masked = norm.inputs(1), activated = producer->instruction.inputs(0),
                     dy = producer->instruction.inputs(1);
      op.set_activation(activation);
      op.set_recompute(offset.has_value());
      if (uses_[masked].size() > 1 || EscapesFrom(masked)) {
        op.set_keep(true);
        norm.add_outputs(masked);
        producers_[masked] = i;
      }
      Remove(masked, i);
      fused_[index] = true;
      norm.set_inputs(1, dy);
      last = offset.value_or(activated);
      if (offset) {
        Remove(activated, index);
        uses_[*offset].push_back(i);
      } else {
        MoveUse(activated, index, i);
      }
      MoveUse(dy, index, i);
      producer = Producer(dy, &index);
    }
    size_t reader = 0;
    if (producer != nullptr && IsBinary(*producer, program::v1::ADD) && fits() &&
        OnlyReader(norm.inputs(1), nodes_[i].ipu, &reader) != nullptr) {
      op.set_add(true);
      fused_[index] = true;
      norm.set_inputs(1, producer->instruction.inputs(0));
      norm.add_inputs(producer->instruction.inputs(1));
      for (uint32_t value : producer->instruction.inputs()) MoveUse(value, index, i);
    }
    if (last) norm.add_inputs(*last);
  }

  void Remove(uint32_t value, size_t reader) {
    std::vector<size_t>& readers = uses_[value];
    readers.erase(std::find(readers.begin(), readers.end(), reader));
  }
  void MoveUse(uint32_t value, size_t from, size_t to) {
    std::vector<size_t>& readers = uses_[value];
    *std::find(readers.begin(), readers.end(), from) = to;
  }

  static bool IsElementwise(const Node& node) {
    return program::FindOp(node.instruction.attributes_case())->elementwise;
  }
  bool IsBackward(const Node& node) const { return node.instruction.outputs(0) >= first_backward_; }

  // Makes a map of node `root`, whose origin it keeps, and of those before it that only it, or
  // they, need.
  void FuseMap(size_t root) {
    std::set<size_t> group = {root};
    std::set<uint32_t> inputs;
    std::vector<uint32_t> pending(nodes_[root].instruction.inputs().begin(),
                                  nodes_[root].instruction.inputs().end());
    while (!pending.empty()) {
      const uint32_t value = pending.back();
      pending.pop_back();
      size_t index = 0;
      const Node* producer = Producer(value, &index);
      if (producer != nullptr && group.contains(index)) continue;
      if (producer == nullptr || !CanJoin(*producer, value, root, group) ||
          inputs.size() + pending.size() + 3 > program::kMostMapInputs ||
          group.size() == program::kMostMapSteps) {
        inputs.insert(value);
        continue;
      }
      group.insert(index);
      const auto& more = producer->instruction.inputs();
      pending.insert(pending.end(), more.begin(), more.end());
    }
    if (group.size() > 1) MakeMap(root, group);
  }

  bool CanJoin(const Node& node, uint32_t value, size_t root, const std::set<size_t>& group) const {
    const Node& last = nodes_[root];
    const std::vector<size_t>& readers = uses_.at(value);
    return IsElementwise(node) && node.ipu == last.ipu && IsBackward(node) == IsBackward(last) &&
           !EscapesFrom(value) &&
           ValueOf(value).type.dims == ValueOf(last.instruction.outputs(0)).type.dims &&
           std::all_of(readers.begin(), readers.end(),
                       [&](size_t reader) { return group.contains(reader); });
  }

  void MakeMap(size_t root, const std::set<size_t>& group) {
    Instruction map;
    std::map<uint32_t, uint32_t> numbers;  // of values in the map
    for (size_t index : group) {
      for (uint32_t value : nodes_[index].instruction.inputs()) {
        const auto producer = producers_.find(value);
        const bool inside = producer != producers_.end() && group.contains(producer->second);
        if (inside || numbers.contains(value)) continue;
        numbers.emplace(value, static_cast<uint32_t>(map.inputs_size()));
        map.add_inputs(value);
        uses_[value].push_back(root);
      }
    }
    auto next = static_cast<uint32_t>(map.inputs_size());
    for (size_t index : group) {
      Instruction* step = map.mutable_map()->add_steps();
      *step = nodes_[index].instruction;
      numbers[step->outputs(0)] = next++;
      step->clear_outputs();
      for (uint32_t& value : *step->mutable_inputs()) value = numbers.at(value);
      fused_[index] = index != root;
    }
    map.add_outputs(nodes_[root].instruction.outputs(0));
    nodes_[root].instruction = std::move(map);
  }

  // A node comes after the nodes that make its inputs, and after those that must be before it;
  // otherwise the order stays.
  std::vector<Node> InOrder() {
    std::vector<Node> ordered;
    std::vector<bool> begun(nodes_.size());
    for (size_t first = 0; first < nodes_.size(); ++first) {
      std::vector<std::pair<size_t, int>> path;  // nodes, and how many of their inputs are done
      const auto enter = [&](size_t index) {
        if (fused_[index] || begun[index]) return;
        begun[index] = true;
        path.emplace_back(index, before_[index] ? -1 : 0);
      };
      enter(first);
      while (!path.empty()) {
        auto& [index, done] = path.back();
        if (done < 0) {
          done = 0;
          enter(*before_[index]);
          continue;
        }
        const Instruction& instruction = nodes_[index].instruction;
        if (done == instruction.inputs_size()) {
          ordered.push_back(std::move(nodes_[index]));
          path.pop_back();
          continue;
        }
        const auto producer = producers_.find(graph_.RootOf(instruction.inputs(done++)));
        if (producer != producers_.end()) enter(producer->second);
      }
    }
    return ordered;
  }

  const graph::Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<bool> fused_;                    // into another node
  std::vector<std::optional<size_t>> before_;  // a node that must come before
  const std::set<uint32_t> results_;
  const uint32_t first_backward_;
  std::map<uint32_t, size_t> producers_;          // of a value, the node that makes it
  std::map<uint32_t, std::vector<size_t>> uses_;  // of a value, the nodes that read it
  std::set<uint32_t> aliased_;                    // values with a reshape that is read
};

}  // namespace

void Fuse(GraphProgram& program) { program.graph.SetNodes(Fusion(program).Run()); }

}  // namespace vpod::compiler
