#include "client/compiler/dead_code.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace vpod::compiler {
namespace {

using graph::Graph;
using program::v1::Instruction;

// Finds the nodes that make values, and all that these read.
class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (uint32_t id : graph.nodes()[i].instruction.outputs()) producers_[id] = i;
    }
  }

  std::set<size_t> NodesFor(std::vector<uint32_t> pending) const {
    std::set<size_t> nodes;
    std::set<uint32_t> seen;
    while (!pending.empty()) {
      const uint32_t id = graph_.RootOf(pending.back());
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      const auto producer = producers_.find(id);
      if (producer == producers_.end() || !nodes.insert(producer->second).second) continue;
      const auto& read = graph_.nodes()[producer->second].instruction.inputs();
      pending.insert(pending.end(), read.begin(), read.end());
    }
    return nodes;
  }

 private:
  const Graph& graph_;
  std::map<uint32_t, size_t> producers_;  // by value
};

// The nodes that a program needs, in their order of execution.
std::vector<graph::Node> LiveNodes(const GraphProgram& program) {
  const Graph& graph = program.graph;
  std::vector<uint32_t> first;
  for (const auto& [ipu, state] : program.rounding) first.push_back(state.number.id);
  const std::set<uint32_t> results = ResultsOf(program);
  std::vector<uint32_t> read(results.begin(), results.end());
  std::set<size_t> stores;  // nodes without outputs: what they do is seen later
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Instruction& instruction = graph.nodes()[i].instruction;
    if (!instruction.outputs().empty()) continue;
    stores.insert(i);
    read.insert(read.end(), instruction.inputs().begin(), instruction.inputs().end());
  }
  const Search search(graph);
  const std::set<size_t> early = search.NodesFor(std::move(first));
  std::set<size_t> needed = search.NodesFor(std::move(read));
  needed.merge(stores);
  std::vector<graph::Node> live;
  for (size_t i : early) live.push_back(graph.nodes()[i]);
  for (size_t i : needed) {
    if (!early.contains(i)) live.push_back(graph.nodes()[i]);
  }
  return live;
}

// A program that does not train makes the assignments of all programs, and counts its micro-batches
// only if it reads their number.
void RemoveUnreadCounters(GraphProgram& program) {
  std::vector<graph::Assignment> all = program.graph.assignments(), always = all;
  std::erase_if(always, [](const auto& each) { return each.when != graph::Assigned::kAlways; });
  program.graph.SetAssignments(std::move(always));
  std::set<uint32_t> read = ResultsOf(program);
  for (const graph::Node& node : LiveNodes(program)) {
    for (uint32_t id : node.instruction.inputs()) read.insert(program.graph.RootOf(id));
  }
  std::erase_if(all, [&](const graph::Assignment& each) {
    const bool unread_counter =
        each.when == graph::Assigned::kIfRead && !read.contains(each.variable.id);
    return unread_counter || each.when == graph::Assigned::kInTraining;
  });
  program.graph.SetAssignments(std::move(all));
}

}  // namespace

void RemoveDeadCode(GraphProgram& program) {
  if (!program.trains()) RemoveUnreadCounters(program);
  program.graph.SetNodes(LiveNodes(program));
}

}  // namespace vpod::compiler
