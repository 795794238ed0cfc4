// The losses of torch.nn.functional over a graph, with its definitions, defaults and reductions.
// Cross-entropy is an operation of the graph itself.
//
//   Tensor loss = nn::HuberLoss(graph, prediction, target);
//
// Inputs and targets are of one float type, and shapes are broadcast where nothing else is said.
#pragma once

#include "client/graph/graph.h"

namespace vpod::nn {

using graph::Graph;
using graph::Tensor;

// A loss has its elements, or the mean or sum of them, a scalar.
enum class Reduction { kNone, kMean, kSum };

Tensor MseLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction = Reduction::kMean);
Tensor L1Loss(Graph& graph, Tensor input, Tensor target, Reduction reduction = Reduction::kMean);
// Square below `beta`, linear above; 0: L1Loss.
Tensor SmoothL1Loss(Graph& graph, Tensor input, Tensor target,
                    Reduction reduction = Reduction::kMean, double beta = 1);
// `delta` times SmoothL1Loss with this beta.
Tensor HuberLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction = Reduction::kMean,
                 double delta = 1);

// Probabilities and targets of 0 to 1. A logarithm is -100 at least; where it is that of 0 its
// gradient is 0, which PyTorch limits to 1e12.
Tensor BinaryCrossEntropy(Graph& graph, Tensor probabilities, Tensor target,
                          Reduction reduction = Reduction::kMean, Tensor weight = {});
struct BceWithLogitsOptions {
  Tensor weight;           // of elements; none if invalid
  Tensor positive_weight;  // of the targets' part; none if invalid
};
Tensor BinaryCrossEntropyWithLogits(Graph& graph, Tensor logits, Tensor target,
                                    Reduction reduction = Reduction::kMean,
                                    const BceWithLogitsOptions& options = {});
// The mean over the classes, which are the last dimension, of the loss above.
Tensor MultiLabelSoftMarginLoss(Graph& graph, Tensor logits, Tensor target,
                                Reduction reduction = Reduction::kMean, Tensor weight = {});

struct NllOptions {
  Tensor weight;  // of classes, [classes]; none if invalid. The mean is a weighted one.
  int32_t ignored_label = -100;
};
// Logarithms of probabilities [n, classes], INT32 labels [n]. A label that does not exist fails the
// run.
Tensor NllLoss(Graph& graph, Tensor log_probabilities, Tensor labels,
               Reduction reduction = Reduction::kMean, const NllOptions& options = {});
// target × (log(target) - input), 0 where the target is. `log_target`: targets are logarithms.
Tensor KlDivergence(Graph& graph, Tensor log_probabilities, Tensor target,
                    Reduction reduction = Reduction::kMean, bool log_target = false);

// Targets are 1 or -1 in what follows.
// log(1 + exp(-target × input)); PyTorch's overflows where this does not.
Tensor SoftMarginLoss(Graph& graph, Tensor input, Tensor target,
                      Reduction reduction = Reduction::kMean);
Tensor HingeEmbeddingLoss(Graph& graph, Tensor input, Tensor target,
                          Reduction reduction = Reduction::kMean, double margin = 1);
// 1: the first input is to be the larger one.
Tensor MarginRankingLoss(Graph& graph, Tensor first, Tensor second, Tensor target,
                         Reduction reduction = Reduction::kMean, double margin = 0);
// Vectors [n, features] or [features], targets [n] or a scalar.
Tensor CosineEmbeddingLoss(Graph& graph, Tensor first, Tensor second, Tensor target,
                           Reduction reduction = Reduction::kMean, double margin = 0);

struct TripletOptions {
  double margin = 1;
  bool swap = false;  // the negative's distance may be that to the positive, if it is smaller
};
// Euclidean distances of vectors in the last dimension.
Tensor TripletMarginLoss(Graph& graph, Tensor anchor, Tensor positive, Tensor negative,
                         Reduction reduction = Reduction::kMean,
                         const TripletOptions& options = {});

struct PoissonOptions {
  bool log_input = true;  // inputs are logarithms of the expectation
  bool full = false;      // with Stirling's approximation of log(target!)
  double epsilon = 1e-8;  // added to inputs whose logarithm is taken
};
Tensor PoissonNllLoss(Graph& graph, Tensor input, Tensor target,
                      Reduction reduction = Reduction::kMean, const PoissonOptions& options = {});

struct GaussianOptions {
  bool full = false;  // with the constant log(2 pi) / 2
  // A variance below it counts as this. It gets no gradient then; PyTorch lets it pass.
  double epsilon = 1e-6;
};
Tensor GaussianNllLoss(Graph& graph, Tensor input, Tensor target, Tensor variance,
                       Reduction reduction = Reduction::kMean, const GaussianOptions& options = {});

}  // namespace vpod::nn
