// From a tape to a graph, which the compiler takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/graph/graph.h"
#include "client/poptorch/program.h"

namespace vpod::poptorch {

// The stream names of inputs, results and written inputs, by their places on the tape.
std::string InputName(size_t input);
std::string ResultName(size_t result);
std::string WrittenInputName(size_t input);
// And of an anchor, by its place in the options.
std::string AnchorName(size_t anchor);
// The buffer with the number of the replica's group, for a parameter with ReplicaGroups.
inline constexpr char kGroupPrefix[] = "replica/group/";
std::string GroupNumberName(const std::string& parameter);

struct BuiltGraph {
  graph::Graph graph;
  std::optional<graph::Tensor> loss;  // of a model that trains; one element
  // The parameters that a model trains: those that require gradients, have a group of the optimiser
  // and are used.
  std::vector<std::string> trained;
  std::vector<compiler::GradientOutput> gradient_outputs;  // those anchors that are gradients
  // As many as the IPU with the largest number says.
  uint32_t ipus = 1;
  // Whether spans on the tape ask that gradients compute all values again except checkpoints.
  bool recomputes = false;
  // How many stages the forward pass has: one more than there are changes of the IPU, counted from
  // IPU 0.
  uint32_t stages = 1;
};

// InvalidArgument names an operator or mark that a graph cannot have, with the module and the line
// of the program. Unimplemented lists all operators that client/aten does not know. `optimizer`
// says which parameters are trained.
absl::StatusOr<BuiltGraph> BuildGraph(const Tape& tape, const ModelOptions& options,
                                      const OptimizerOptions& optimizer);

}  // namespace vpod::poptorch
