// What the marks of a tape say of the nodes of its graph: how products are planned, and which
// values gradients compute again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "client/graph/graph.h"
#include "client/poptorch/program.h"
#include "client/poptorch/spans.h"

namespace vpod::poptorch {

// The tape outlives it.
class Marks {
 public:
  explicit Marks(const Tape& tape) : tape_(tape) {}

  // Comes first. The numbers on the tape must exist.
  void ReadTape();
  // The record with this place on the tape has added the nodes from `first_node` on.
  void AddNodes(size_t record, size_t first_node, const graph::Graph& graph);
  // Sets the plans of marked products and convolutions. Other marked nodes have no plan.
  void SetProductPlans(graph::Graph& graph) const;

  // None if the tape has no spans.
  const std::optional<Spans>& spans() const { return spans_; }
  // Values of the graph that records outside of the spans make.
  const std::vector<uint32_t>& outside_spans() const { return outside_spans_; }

 private:
  const Tape& tape_;
  std::map<ValueId, float> shares_;                     // by result
  std::map<ValueId, program::v1::DataType> partials_;   // by result
  std::map<size_t, float> share_of_;                    // by node
  std::map<size_t, program::v1::DataType> partial_of_;  // by node
  std::optional<Spans> spans_;
  std::vector<uint32_t> outside_spans_;
};

}  // namespace vpod::poptorch
