// Finds where a node may write its output over what it reads, because nobody needs that any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "client/compiler/graph_program.h"
#include "client/compiler/placement.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

class InPlace {
 public:
  // The references outlive the object.
  InPlace(const GraphProgram& program, const Placement& placement);

  // The buffer in which a value is made, because it is only assigned to that and nobody reads the
  // buffer later.
  std::optional<uint32_t> BufferOf(uint32_t value) const;
  // Whether nobody needs what the first input of node number `number` holds after it, so that the
  // output takes its place. `lowered` has the node's tensors.
  bool MayUpdate(const graph::Node& node, size_t number,
                 const program::v1::Instruction& lowered) const;

 private:
  void FindValuesMadeInBuffers();
  bool WritesOverItsInput(const graph::Node& node, uint32_t buffer) const;

  const graph::Graph& graph_;
  const std::set<uint32_t> results_;  // read by others than the nodes
  const Placement& placement_;
  std::map<uint32_t, size_t> last_readers_;  // by value, in whatever shape it is read: numbers
  std::map<uint32_t, uint32_t> buffers_;     // in which values are made
};

}  // namespace vpod::compiler
