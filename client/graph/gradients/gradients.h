// Derivatives of the op set: each family's function adds to `gradients` what an operation passes
// back to its inputs. They may assume that the graph is sound and that the gradient of at least one
// output is present.
#pragma once

#include <map>

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

void UnaryGradient(Graph& graph, const v1::Unary& op, GradientMap& gradients);
void BinaryGradient(Graph& graph, const v1::Binary& op, GradientMap& gradients);
void CastGradient(Graph& graph, const v1::Cast& op, GradientMap& gradients);
void ReduceGradient(Graph& graph, const v1::Reduce& op, GradientMap& gradients);
void MatMulGradient(Graph& graph, const v1::MatMul& op, GradientMap& gradients);
void Conv2dGradient(Graph& graph, const v1::Conv2d& op, GradientMap& gradients);
void MaxPool2dGradient(Graph& graph, const v1::MaxPool2d& op, GradientMap& gradients);
void SoftmaxCrossEntropyGradient(Graph& graph, const v1::SoftmaxCrossEntropy& op,
                                 GradientMap& gradients);
void CollectiveGradient(Graph& graph, const v1::Instruction& instruction, GradientMap& gradients);

}  // namespace vpod::graph
