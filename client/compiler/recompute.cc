#include "client/compiler/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "client/compiler/checkpoints.h"
#include "client/compiler/compiler.h"
#include "client/compiler/pipeline_stages.h"
#include "device/model/memory_advice.h"
#include "device/program/activations.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

using graph::Node;
using graph::Value;
using program::v1::Instruction;
using program::v1::Origin;

class Recomputer {
 public:
  Recomputer(Recomputation recomputation, GraphProgram& program)
      : recomputation_(recomputation),
        program_(program),
        graph_(program.graph),
        nodes_(graph_.nodes()),
        again_(nodes_.size()),
        stages_are_ipus_(StagesAreIpus(graph_)) {
    for (const graph::Assignment& each : graph_.assignments()) changed_.insert(each.variable.id);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (uint32_t id : nodes_[i].instruction.outputs()) producers_[id] = i;
    }
  }

  void Run() {
    Choose();
    std::vector<Node> ordered;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node node = nodes_[i];
      if (PhaseOf(i) == Origin::BACKWARD) {
        Repeat(i, ordered);
        RenameInputs(i, node.instruction);
      }
      ordered.push_back(std::move(node));
    }
    graph_.SetNodes(std::move(ordered));
  }

 private:
  Origin::Phase PhaseOf(size_t node) const {
    return graph_.origins().at(nodes_[node].origin).phase();
  }
  uint32_t StageOf(size_t node) const {
    return stages_are_ipus_ ? nodes_[node].ipu : graph_.origins().at(nodes_[node].origin).stage();
  }

  // --- Which operations are repeated ---
  bool CanRepeat(size_t index, const std::set<uint32_t>& results) const {
    const Instruction& instruction = nodes_[index].instruction;
    const auto& outputs = instruction.outputs();
    const auto is_kept = [&](uint32_t id) {
      return results.contains(id) || graph_.values()[id].is_checkpoint;
    };
    return PhaseOf(index) == Origin::FORWARD && !outputs.empty() &&
           outputs[0] < program_.first_backward &&
           program::FindOp(instruction.attributes_case())->role == program::Role::kKernel &&
           !instruction.has_remote_load() && !instruction.has_remote_store() &&
           graph_.values()[outputs[0]].type.elements() > 1 &&
           std::none_of(outputs.begin(), outputs.end(), is_kept) &&
           std::none_of(instruction.inputs().begin(), instruction.inputs().end(),
                        [&](uint32_t id) { return changed_.contains(graph_.RootOf(id)); });
  }

  bool IsNorm(size_t index) const {
    const Instruction& instruction = nodes_[index].instruction;
    if (instruction.has_batch_norm() || instruction.has_layer_norm()) return true;
    if (!instruction.has_unary() || !program::IsActivation(instruction.unary().operator_()))
      return false;
    const auto producer = producers_.find(instruction.inputs(0));
    return producer != producers_.end() && IsNorm(producer->second);
  }

  void Choose() {
    const std::set<uint32_t> results = ResultsOf(program_);
    std::map<uint32_t, std::vector<size_t>> stages;  // nodes of forward parts
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (PhaseOf(i) != Origin::FORWARD || nodes_[i].instruction.outputs().empty()) continue;
      stages[StageOf(i)].push_back(i);
      again_[i] =
          CanRepeat(i, results) && (recomputation_ != Recomputation::kNormOnly || IsNorm(i));
    }
    if (stages.empty()) return;
    const uint32_t last = stages.rbegin()->first;
    for (const auto& [stage, forward] : stages) {
      if (recomputation_ == Recomputation::kPipeline && stage == last) KeepLastPart(forward);
      if (recomputation_ == Recomputation::kStandard) KeepCheckpoints(forward, stage == last);
    }
  }

  // The gradients of what follows the last checkpoint come next: it would be computed twice in a
  // row.
  void KeepLastPart(const std::vector<size_t>& forward) {
    for (size_t i = forward.size(); i-- > 0;) {
      const auto& outputs = nodes_[forward[i]].instruction.outputs();
      if (std::any_of(outputs.begin(), outputs.end(),
                      [&](uint32_t id) { return graph_.values()[id].is_checkpoint; }))
        return;
      again_[forward[i]] = false;
    }
  }

  // Keeps what the parts of a stage read of each other, and, in the last stage, the last part.
  void KeepCheckpoints(const std::vector<size_t>& forward, bool is_last) {
    const std::vector<ChainLink> chain = ChainOf(forward);
    const std::vector<size_t> beginnings = BeginningsOfParts(chain);
    size_t part = 0;
    for (size_t i = 0; i < chain.size(); ++i) {
      if (part < beginnings.size() && i == beginnings[part]) ++part;
      const size_t end = part < beginnings.size() ? beginnings[part] : chain.size();
      if (chain[i].last_reader >= end || (is_last && part == beginnings.size()))
        again_[forward[i]] = false;
    }
  }

  std::vector<ChainLink> ChainOf(const std::vector<size_t>& forward) const {
    std::vector<ChainLink> chain(forward.size());
    std::map<size_t, size_t> places;  // in the chain, by node
    for (size_t i = 0; i < forward.size(); ++i) {
      places[forward[i]] = i;
      chain[i].last_reader = i;
      for (uint32_t id : nodes_[forward[i]].instruction.outputs())
        chain[i].bytes += graph_.values()[id].type.bytes();
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto reader = places.find(i);
      for (uint32_t id : nodes_[i].instruction.inputs()) {
        const auto producer = producers_.find(graph_.RootOf(id));
        if (producer == producers_.end()) continue;
        const auto place = places.find(producer->second);
        if (place == places.end()) continue;
        ChainLink& link = chain[place->second];
        if (reader != places.end()) link.last_reader = std::max(link.last_reader, reader->second);
        if (PhaseOf(i) == Origin::BACKWARD) link.read_bytes = link.bytes;
      }
    }
    return chain;
  }

  // --- Repeating them ---
  // The operation that makes a value for a reader of the same stage, if it is repeated.
  const size_t* Repeated(uint32_t id, size_t reader) const {
    const auto producer = producers_.find(graph_.RootOf(id));
    if (producer == producers_.end() || !again_[producer->second]) return nullptr;
    const size_t index = producer->second;
    const bool same = StageOf(index) == StageOf(reader) && nodes_[index].ipu == nodes_[reader].ipu;
    return same ? &producer->second : nullptr;
  }

  // Adds all that a gradient reads and that is not there yet, in the order of the forward pass.
  void Repeat(size_t gradient, std::vector<Node>& ordered) {
    std::set<size_t> needed;
    std::vector<size_t> pending = {gradient};
    while (!pending.empty()) {
      const size_t reader = pending.back();
      pending.pop_back();
      for (uint32_t id : nodes_[reader].instruction.inputs()) {
        const size_t* producer = Repeated(id, reader);
        if (producer == nullptr || done_.contains(*producer)) continue;
        if (needed.insert(*producer).second) pending.push_back(*producer);
      }
    }
    for (size_t index : needed) {
      Node node = nodes_[index];
      RenameInputs(index, node.instruction);
      for (uint32_t& id : *node.instruction.mutable_outputs()) {
        const uint32_t copy = graph_.AddLike({id}).id;
        program_.recomputed[copy] = id;
        id = renamed_[id] = copy;
      }
      Origin origin = graph_.origins().at(node.origin);
      origin.set_phase(Origin::RECOMPUTE);
      node.origin = graph_.origins().Add(std::move(origin));
      ordered.push_back(std::move(node));
      done_.insert(index);
    }
  }

  void RenameInputs(size_t reader, Instruction& instruction) {
    for (uint32_t& id : *instruction.mutable_inputs()) {
      if (Repeated(id, reader) != nullptr) id = Renamed(id);
    }
  }

  // A reshape of a repeated value is one of the new value.
  uint32_t Renamed(uint32_t id) {
    const auto known = renamed_.find(id);
    if (known != renamed_.end()) return known->second;
    const uint32_t source = Renamed(graph_.values()[id].alias_of);
    return renamed_[id] = graph_.AddLike({id}, {source}).id;
  }

  const Recomputation recomputation_;
  GraphProgram& program_;
  graph::Graph& graph_;
  const std::vector<Node> nodes_;
  std::vector<bool> again_;  // by node
  const bool stages_are_ipus_;
  std::set<uint32_t> changed_;            // variables that micro-batches change
  std::map<uint32_t, size_t> producers_;  // of a value, the node that makes it
  std::set<size_t> done_;                 // nodes that have been repeated
  std::map<uint32_t, uint32_t> renamed_;  // new values by old
};

}  // namespace

void Recompute(Recomputation recomputation, GraphProgram& program) {
  if (recomputation == Recomputation::kNone || !program.trains()) return;
  Recomputer(recomputation, program).Run();
}

const char* NameOf(Recomputation recomputation) {
  for (const auto& [name, value] : kRecomputationNames) {
    if (value == recomputation) return name;
  }
  return "";
}

bool Recomputes(const program::Executable& executable) {
  return model::FeaturesOf(executable, {}).recomputes;
}

}  // namespace vpod::compiler
