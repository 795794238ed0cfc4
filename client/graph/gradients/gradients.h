// Derivatives of the op set, in ops of the same set.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "client/graph/gradients/joining.h"
#include "client/graph/graph.h"

namespace vpod::graph {

// Gradients collected so far, by value id.
class GradientMap {
 public:
  explicit GradientMap(Graph& graph) : graph_(graph) {}
  // Contributions to this value are not added to each other.
  void KeepApart(uint32_t value) { kept_apart_.insert(value); }
  // The gradients of the value: none, or one unless its contributions are kept apart.
  const std::vector<Tensor>& All(uint32_t value) const;
  // The gradient of a value whose contributions are added; invalid if there is none.
  Tensor Get(uint32_t value) const { return All(value).empty() ? Tensor{} : All(value).front(); }
  // Adds a contribution; integer values take none.
  void Add(uint32_t value, Tensor gradient);
  // Adds a contribution that is the same all along the axes in which its length is 1. It is not
  // written out if it is added to another.
  void AddRepeated(uint32_t value, Tensor gradient);
  // Adds a contribution to a part of the value, which counts from JoinParts on.
  void AddPart(uint32_t value, PartGradient part) {
    if (part.gradient.valid()) parts_[value].push_back(std::move(part));
  }
  bool HasParts(uint32_t value) const { return parts_.contains(value); }
  bool HasAny(uint32_t value) const { return HasParts(value) || !All(value).empty(); }
  void JoinParts(uint32_t value);

 private:
  Graph& graph_;
  std::set<uint32_t> kept_apart_;
  std::map<uint32_t, std::vector<Tensor>> gradients_;
  std::map<uint32_t, std::vector<PartGradient>> parts_;
};

// A row of the table of derivatives; each is in the file of its family.
struct GradientDef {
  program::OpKind kind;
  // Adds to `gradients` what the instruction passes back to its inputs. May assume that the graph
  // is sound and that the gradient of at least one output is present.
  void (*add)(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) = nullptr;
  // Instead: why nothing flows back.
  const char* none = nullptr;
  // Instead: the message of the Unimplemented error.
  const char* missing = nullptr;
};

// Every op has a row. Null if no op has this kind.
const GradientDef* FindGradient(program::OpKind kind);

// --- By family, for FindGradient ---
std::vector<GradientDef> BatchNormGradients();
std::vector<GradientDef> CollectiveGradients();
std::vector<GradientDef> ConvolutionGradients();
std::vector<GradientDef> DataMovementGradients();
std::vector<GradientDef> ElementwiseGradients();
std::vector<GradientDef> GatherGradients();
std::vector<GradientDef> LayerNormGradients();
std::vector<GradientDef> LineGradients();
std::vector<GradientDef> LossGradients();
std::vector<GradientDef> MatMulGradients();
std::vector<GradientDef> PoolingGradients();
std::vector<GradientDef> ReduceGradients();
std::vector<GradientDef> SoftmaxGradients();

}  // namespace vpod::graph
