// Puts together the gradients that several uses of a value pass back, in few operations.
#pragma once

#include <vector>

#include "client/graph/graph.h"

namespace vpod::graph {

// The gradient of a part of a value: elements next to each other from `begin` on, in all axes.
struct PartGradient {
  Tensor gradient;
  Dims begin;
};

// Gradients of the whole value, of these dimensions, whose sum is that of its parts. Parts that
// follow one another along an axis are concatenated: padded, each would be as large as the whole.
std::vector<Tensor> JoinParts(Graph& graph, const Dims& dims, std::vector<PartGradient> parts);

// As `gradients`, but the sum of products of matrices of few columns, A·B + C·D + …, is one of the
// joined matrices [A C …]·[B; D; …]: the steps of a recurrent network pass back one gradient of
// their weights. It is FLOAT32.
std::vector<Tensor> JoinProducts(Graph& graph, const std::vector<Tensor>& gradients);

}  // namespace vpod::graph
