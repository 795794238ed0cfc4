// Derivatives of the op set, in ops of the same set.
#pragma once

#include <map>
#include <vector>

#include "client/graph/graph.h"

namespace vpod::graph {

// Gradients collected so far, by value id.
class GradientMap {
 public:
  explicit GradientMap(Graph& graph) : graph_(graph) {}
  // Invalid when nothing flowed back to the value.
  Tensor Get(uint32_t value) const {
    const auto it = gradients_.find(value);
    return it == gradients_.end() ? Tensor{} : it->second;
  }
  // Adds a contribution; integer values take none.
  void Add(uint32_t value, Tensor gradient);

 private:
  Graph& graph_;
  std::map<uint32_t, Tensor> gradients_;
};

// A row of the table of derivatives; each is in the file of its family.
struct GradientDef {
  program::OpKind kind;
  // Adds to `gradients` what the instruction passes back to its inputs. May assume that the graph
  // is sound and that the gradient of at least one output is present. Null: nothing flows back.
  void (*add)(Graph& graph, const v1::Instruction& forward, GradientMap& gradients);
  const char* none = nullptr;  // why nothing flows back
};

// Every op has a row. Null for a kind that is none.
const GradientDef* FindGradient(program::OpKind kind);

// --- By family, for FindGradient ---
std::vector<GradientDef> BatchNormGradients();
std::vector<GradientDef> CollectiveGradients();
std::vector<GradientDef> ConvolutionGradients();
std::vector<GradientDef> DataMovementGradients();
std::vector<GradientDef> ElementwiseGradients();
std::vector<GradientDef> LossGradients();
std::vector<GradientDef> MatMulGradients();
std::vector<GradientDef> PoolingGradients();
std::vector<GradientDef> ReduceGradients();

}  // namespace vpod::graph
