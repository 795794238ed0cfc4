#include "client/nn/losses.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/nn/term.h"

namespace vpod::nn {

namespace {

Term OverLast(Term a, program::v1::ReduceOperator function) {
  Graph& graph = a.graph();
  if (!graph.status().ok()) return {graph, {}};
  const size_t rank = graph.TypeOf(a).rank();
  if (rank == 0) {
    return {graph, graph.Fail(absl::InvalidArgumentError(
                       "a loss over vectors needs a dimension or more, and has a scalar"))};
  }
  return {graph, graph.Reduce(function, a, {static_cast<uint32_t>(rank - 1)})};
}
Term SumOverLast(Term a) { return OverLast(a, program::v1::SUM); }

Tensor Reduced(Term losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return losses.graph().Mean(losses);
    case Reduction::kSum:
      return losses.graph().Sum(losses);
    default:
      return losses;
  }
}

Tensor Weighted(Term losses, Tensor weight, Reduction reduction) {
  if (weight.valid()) losses = losses * Term(losses.graph(), weight);
  return Reduced(losses, reduction);
}

// The cosine, triplet and Poisson losses are computed in float32: their squares, products or small
// constants do not fit float16.
Term Wide(Graph& graph, Tensor x) { return {graph, graph.Cast(x, program::v1::FLOAT32)}; }

Tensor LikeInput(Graph& graph, Tensor loss, Tensor input) {
  return graph.status().ok() ? graph.Cast(loss, graph.TypeOf(input).type) : Tensor{};
}

Term LogitsLoss(Graph& graph, Tensor logits, Tensor target, Tensor positive_weight) {
  const Term x(graph, logits), y(graph, target);
  const Term rest = (1 - y) * x;
  if (!positive_weight.valid()) return rest + Softplus(-x);
  return rest + ((Term(graph, positive_weight) - 1) * y + 1) * Softplus(-x);
}

}  // namespace

Tensor MseLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction) {
  return Reduced(Square(Term(graph, input) - Term(graph, target)), reduction);
}

Tensor L1Loss(Graph& graph, Tensor input, Tensor target, Reduction reduction) {
  return Reduced(Abs(Term(graph, input) - Term(graph, target)), reduction);
}

Tensor SmoothL1Loss(Graph& graph, Tensor input, Tensor target, Reduction reduction, double beta) {
  if (beta == 0) return L1Loss(graph, input, target, reduction);
  const Term distance = Abs(Term(graph, input) - Term(graph, target)), near = Min(distance, beta);
  return Reduced(near * (distance - near * 0.5) * (1 / beta), reduction);
}

Tensor HuberLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction, double delta) {
  const Term distance = Abs(Term(graph, input) - Term(graph, target)), near = Min(distance, delta);
  return Reduced(near * (distance - near * 0.5), reduction);
}

Tensor BinaryCrossEntropy(Graph& graph, Tensor probabilities, Tensor target, Reduction reduction,
                          Tensor weight) {
  constexpr double kLeast = -100;
  const Term p(graph, probabilities), y(graph, target);
  // The inner selections keep the gradient finite where the outer ones pass over it.
  const Term none = p == 0, all = p == 1;
  const Term log_p = Where(none, kLeast, Max(Log(Where(none, 1, p)), kLeast));
  const Term log_rest = Where(all, kLeast, Max(Log1p(-Where(all, 0.0, p)), kLeast));
  return Weighted((y - 1) * log_rest - y * log_p, weight, reduction);
}

Tensor BinaryCrossEntropyWithLogits(Graph& graph, Tensor logits, Tensor target, Reduction reduction,
                                    const BceWithLogitsOptions& options) {
  return Weighted(LogitsLoss(graph, logits, target, options.positive_weight), options.weight,
                  reduction);
}

Tensor MultiLabelSoftMarginLoss(Graph& graph, Tensor logits, Tensor target, Reduction reduction,
                                Tensor weight) {
  const Term losses(graph,
                    Weighted(LogitsLoss(graph, logits, target, {}), weight, Reduction::kNone));
  return Reduced(OverLast(losses, program::v1::MEAN), reduction);
}

Tensor NllLoss(Graph& graph, Tensor log_probabilities, Tensor labels, Reduction reduction,
               const NllOptions& options) {
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(log_probabilities), label_type = graph.TypeOf(labels);
  if (type.rank() != 2 || label_type != graph::TensorType{program::v1::INT32, {type.dims[0]}}) {
    return graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("nll_loss needs [n, classes] and INT32 labels [n], and has ", type.ToString(),
                     " and ", label_type.ToString())));
  }
  const Term label(graph, labels), ignored = label == options.ignored_label;
  const Term index = Where(ignored, 0.0, label);
  const int64_t n = type.dims[0];
  const Tensor chosen = graph.Gather(log_probabilities, graph.Reshape(index, {n, 1}), 1,
                                     /*along=*/true, /*labels=*/true);
  const Term ones(graph, graph.Constant({type.type, {n}}, 1));
  const Term of_labels =
      options.weight.valid()
          ? Term(graph, graph.Gather(options.weight, index, 0, /*along=*/false, /*labels=*/true))
          : ones;
  const Term weights = Where(ignored, 0.0, of_labels);
  const Term losses = -Where(ignored, 0.0, Term(graph, graph.Reshape(chosen, {n}))) * weights;
  if (reduction != Reduction::kMean) return Reduced(losses, reduction);
  // The sums may be beyond float16 where their quotient is not.
  const auto sum = [&](Term terms) { return Term(graph, graph.Sum(Wide(graph, terms))); };
  return LikeInput(graph, sum(losses) / sum(weights), log_probabilities);
}

Tensor KlDivergence(Graph& graph, Tensor log_probabilities, Tensor target, Reduction reduction,
                    bool log_target) {
  const Term x(graph, log_probabilities), y(graph, target);
  if (log_target) return Reduced(Exp(y) * (y - x), reduction);
  return Reduced(y * (Log(Where(y > 0, y, 1)) - x), reduction);
}

Tensor SoftMarginLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction) {
  return Reduced(Softplus(-(Term(graph, target) * Term(graph, input))), reduction);
}

Tensor HingeEmbeddingLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction,
                          double margin) {
  const Term x(graph, input), y(graph, target);
  const Term apart = Where(y == 1, 0.0, Relu(margin - x)), together = Where(y == -1, 0.0, x);
  return Reduced(apart + together, reduction);
}

Tensor MarginRankingLoss(Graph& graph, Tensor first, Tensor second, Tensor target,
                         Reduction reduction, double margin) {
  const Term difference = Term(graph, first) - Term(graph, second);
  return Reduced(Relu(-(Term(graph, target) * difference) + margin), reduction);
}

Tensor CosineEmbeddingLoss(Graph& graph, Tensor first, Tensor second, Tensor target,
                           Reduction reduction, double margin) {
  constexpr double kEpsilon = 1e-12;
  const Term a = Wide(graph, first), b = Wide(graph, second), y = Wide(graph, target);
  const Term squares_of_a = SumOverLast(Square(a)) + kEpsilon,
             squares_of_b = SumOverLast(Square(b)) + kEpsilon;
  const Term cosine = SumOverLast(a * b) / Sqrt(squares_of_a * squares_of_b);
  const Term together = Where(y == 1, 1 - cosine, 0.0),
             apart = Where(y == -1, Relu(cosine - margin), 0.0);
  return LikeInput(graph, Reduced(together + apart, reduction), first);
}

Tensor TripletMarginLoss(Graph& graph, Tensor anchor, Tensor positive, Tensor negative,
                         Reduction reduction, const TripletOptions& options) {
  constexpr double kEpsilon = 1e-6;
  const auto distance = [&](Tensor a, Tensor b) {
    return Sqrt(SumOverLast(Square(Wide(graph, a) - Wide(graph, b) + kEpsilon)));
  };
  Term to_negative = distance(anchor, negative);
  if (options.swap) to_negative = Min(to_negative, distance(positive, negative));
  const Term excess = distance(anchor, positive) - to_negative + options.margin;
  return LikeInput(graph, Reduced(Relu(excess), reduction), anchor);
}

Tensor PoissonNllLoss(Graph& graph, Tensor input, Tensor target, Reduction reduction,
                      const PoissonOptions& options) {
  const Term x = Wide(graph, input), y = Wide(graph, target);
  Term losses = options.log_input ? Exp(x) - y * x : x - y * Log(x + options.epsilon);
  if (options.full) {
    const Term large = Where(y > 1, y, 1);  // where the approximation is 0 otherwise
    const Term stirling = large * Log(large) - large + Log(large * (2 * std::numbers::pi)) * 0.5;
    losses = losses + Where(y > 1, stirling, 0.0);
  }
  return LikeInput(graph, Reduced(losses, reduction), input);
}

Tensor GaussianNllLoss(Graph& graph, Tensor input, Tensor target, Tensor variance,
                       Reduction reduction, const GaussianOptions& options) {
  const Term limited = Max(Term(graph, variance), options.epsilon);
  const Term square = Square(Term(graph, input) - Term(graph, target));
  Term losses = (Log(limited) + square / limited) * 0.5;
  if (options.full) losses = losses + 0.5 * std::log(2 * std::numbers::pi);
  return Reduced(losses, reduction);
}

}  // namespace vpod::nn
