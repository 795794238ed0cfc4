#include "client/compiler/dead_code.h"

#include <map>
#include <utility>

namespace vpod::compiler {
namespace {

using graph::Graph;
using program::v1::Instruction;

// Finds the nodes that make values, and all that these read. Notes the inputs among them.
class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (uint32_t id : graph.nodes()[i].instruction.outputs()) producers_[id] = i;
    }
  }

  std::set<size_t> NodesFor(std::vector<uint32_t> pending) {
    std::set<size_t> nodes;
    std::set<uint32_t> seen;
    while (!pending.empty()) {
      const uint32_t id = graph_.RootOf(pending.back());
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      if (graph_.values()[id].origin == graph::Origin::kInput) inputs_.insert(id);
      const auto producer = producers_.find(id);
      if (producer == producers_.end() || !nodes.insert(producer->second).second) continue;
      const auto& read = graph_.nodes()[producer->second].instruction.inputs();
      pending.insert(pending.end(), read.begin(), read.end());
    }
    return nodes;
  }
  const std::set<uint32_t>& inputs() const { return inputs_; }

 private:
  const Graph& graph_;
  std::map<uint32_t, size_t> producers_;  // by value
  std::set<uint32_t> inputs_;
};

}  // namespace

LiveCode FindLiveCode(const Graph& graph, bool assigns, const std::vector<uint32_t>& first,
                      std::vector<uint32_t> results) {
  results.insert(results.end(), first.begin(), first.end());
  for (const auto& output : graph.outputs()) results.push_back(output.value.id);
  if (assigns) {
    for (const auto& assignment : graph.assignments()) results.push_back(assignment.value.id);
  }
  LiveCode live;
  for (uint32_t id : results) live.results.insert(graph.RootOf(id));

  std::set<size_t> stores;  // nodes without outputs: what they do is seen later
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Instruction& instruction = graph.nodes()[i].instruction;
    if (!instruction.outputs().empty()) continue;
    stores.insert(i);
    results.insert(results.end(), instruction.inputs().begin(), instruction.inputs().end());
  }
  Search search(graph);
  const std::set<size_t> early = search.NodesFor(first);
  std::set<size_t> needed = search.NodesFor(std::move(results));
  needed.merge(stores);
  for (size_t i : early) live.nodes.push_back(graph.nodes()[i]);
  for (size_t i : needed) {
    if (!early.contains(i)) live.nodes.push_back(graph.nodes()[i]);
  }
  live.inputs = search.inputs();
  return live;
}

}  // namespace vpod::compiler
