// Which gradients the histogram of HistogramLossScale counts.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

// The FLOAT16 values of a graph without gradients that operations make of variables: the loss
// reaches the variables through them.
std::vector<graph::Tensor> ValuesWithCountedGradients(const graph::Graph& graph);

// The FLOAT16 ones among the gradients, without those that views make; each once, in the order in
// which they are made.
std::vector<graph::Tensor> CountedGradients(const graph::Graph& graph,
                                            absl::Span<const std::vector<graph::Tensor>> gradients);

}  // namespace vpod::compiler
