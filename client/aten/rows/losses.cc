// Softmax and losses.
#include "client/nn/losses.h"

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

// (self, dimension, half to float)
template <bool kLogarithm>
Outputs Softmax(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.flag(2) ? graph.Cast(call.tensor(0), v1::FLOAT32) : call.tensor(0);
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size()));
  const Tensor lines = dims.empty() ? graph.Reshape(self, {1}) : self;
  const Tensor result = kLogarithm ? graph.LogSoftmax(lines, axis) : graph.Softmax(lines, axis);
  return Tensors{graph.Reshape(result, dims)};
}

// (output gradient, output, dimension, type of the input)
template <bool kLogarithm>
Outputs SoftmaxBackward(const Call& call) {
  const Term dy = call.Wide(0), y = call.Wide(1);
  const Dims dims = call.DimsOf(y);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(2), dims.size()));
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(3, call.TypeOf(call.tensor(0)).type));
  const auto sum = [&](Term products) {
    if (dims.empty()) return products;
    Dims kept = dims;
    kept[axis] = 1;
    return call.term(call.graph().Reshape(call.graph().Reduce(v1::SUM, products, {axis}), kept));
  };
  const Term dx = kLogarithm ? dy - Exp(y) * sum(dy) : y * (dy - sum(dy * y));
  return Tensors{call.graph().Cast(dx, type)};
}

// --- Negative log likelihood ---

// Scores as rows, [rows, classes], with a label for each.
struct Labelled {
  Tensor rows;
  Term index;    // a class that exists, whatever is ignored
  Term ignored;  // whether the row is
  Term weight;   // of the row's label, 0 if it is ignored
};

// [n, classes, …] as rows; [classes] as one.
Tensor RowsOf(const Call& call, Tensor scores) {
  Graph& graph = call.graph();
  const Dims dims = call.DimsOf(scores);
  if (dims.size() == 1) return graph.Reshape(scores, {1, dims[0]});
  if (dims.size() == 2) return scores;
  std::vector<uint32_t> order = {0};
  int64_t rows = dims[0];
  for (uint32_t i = 2; i < dims.size(); ++i) {
    order.push_back(i);
    rows *= dims[i];
  }
  order.push_back(1);
  return graph.Reshape(graph.Transpose(scores, order), {rows, dims[1]});
}

Tensor Column(const Call& call, Tensor vector) {
  return call.graph().Reshape(vector, {call.TypeOf(vector).elements(), 1});
}

// Argument i as a label for each of n rows.
absl::StatusOr<Term> LabelsOf(const Call& call, size_t i, int64_t n) {
  const TensorType type = call.TypeOf(call.tensor(i));
  if (type.type != v1::INT32 || type.elements() != n) {
    return call.Refuse(
        absl::StrCat("the labels are ", type.ToString(), ", must be ", n, " of int32"));
  }
  return call.term(call.graph().Reshape(call.tensor(i), {n}));
}

// What labels choose; a run that fails by one says that it is a label. `along`: labels [n, 1]
// choose from rows [n, classes].
Tensor OfLabels(const Call& call, Tensor from, Tensor labels, bool along) {
  return call.graph().Gather(from, labels, along ? 1 : 0, along, /*labels=*/true);
}

// (scores, target, weight, …, ignored label) from argument `first` on.
absl::StatusOr<Labelled> LabelledRows(const Call& call, size_t first) {
  Graph& graph = call.graph();
  const TensorType type = call.TypeOf(call.tensor(first));
  if (type.rank() < 1) return call.Refuse("the scores must have classes");
  const Tensor rows = RowsOf(call, call.tensor(first));
  VPOD_RETURN_IF_ERROR(graph.status());
  const int64_t n = call.DimsOf(rows)[0];
  VPOD_ASSIGN_OR_RETURN(const Term label, LabelsOf(call, first + 1, n));
  const Term ignored = label == static_cast<double>(call.integer(first + 4));
  const Term index = Where(ignored, 0.0, label);
  const Term ones = call.term(graph.Constant({type.type, {n}}, 1));
  const Term of_label =
      call.has(first + 2) ? call.term(OfLabels(call, call.tensor(first + 2), index, false)) : ones;
  return Labelled{rows, index, ignored, call.Wide(Where(ignored, 0.0, of_label))};
}

// (self, target, weight, reduction, ignored label): the loss and the weight of all rows.
Outputs NllForward(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Labelled of, LabelledRows(call, 0));
  const Tensor self = call.tensor(0);
  const int64_t n = call.DimsOf(of.rows)[0];
  const Term chosen = call.Wide(
      graph.Reshape(OfLabels(call, of.rows, Column(call, of.index), /*along=*/true), {n}));
  const Term losses = -(Where(of.ignored, 0.0, chosen) * of.weight);
  // The weight of a single row is given even so.
  if (call.integer(3) == 0 && call.DimsOf(self).size() > 1) {
    return Tensors{call.Narrow(graph.Reshape(losses, call.DimsOf(call.tensor(1))), self),
                   call.Scalar(call.TypeOf(self).type, 0)};
  }
  const Term total = call.term(graph.Sum(of.weight)), sum = call.term(graph.Sum(losses));
  return Tensors{call.Narrow(call.integer(3) == 1 ? sum / total : sum, self),
                 call.Narrow(total, self)};
}

// (output gradient, self, target, weight, reduction, ignored label, total weight)
Outputs NllBackward(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Labelled of, LabelledRows(call, 1));
  const TensorType type = call.TypeOf(call.tensor(1));
  const int64_t n = call.DimsOf(of.rows)[0];
  Term dy = call.Wide(0);
  if (call.integer(4) == 0) dy = call.term(graph.Reshape(dy, {n}));
  // The total weight is known exactly here, and was rounded if it is float16.
  if (call.integer(4) == 1) dy = dy / call.term(graph.Sum(of.weight));
  const Term update = Where(of.ignored, 0.0, -(dy * of.weight));
  const TensorType rows{v1::FLOAT32, call.DimsOf(of.rows)};
  const Tensor gradient =
      graph.Scatter(v1::Scatter::SET, graph.Constant(rows, 0), Column(call, of.index),
                    Column(call, update), 1, /*along=*/true, /*labels=*/true);
  Tensor result = gradient;
  if (type.rank() > 2) {  // the classes back to their place
    Dims apart = {type.dims[0]};
    std::vector<uint32_t> order = {0, static_cast<uint32_t>(type.rank() - 1)};
    for (uint32_t i = 2; i < static_cast<uint32_t>(type.rank()); ++i) {
      apart.push_back(type.dims[i]);
      order.push_back(i - 1);
    }
    apart.push_back(type.dims[1]);
    result = graph.Transpose(graph.Reshape(gradient, apart), order);
  }
  return Tensors{graph.Cast(graph.Reshape(result, type.dims), type.type)};
}

// --- Losses of client/nn, in float32 ---

absl::StatusOr<nn::Reduction> ReductionOf(const Call& call, size_t i) {
  if (call.integer(i) < 0 || call.integer(i) > 2)
    return call.Refuse(absl::StrCat("reduction ", call.integer(i), " must be 0 to 2"));
  return static_cast<nn::Reduction>(call.integer(i));
}

// (self, target, reduction)
Outputs MseLoss(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 2));
  const Tensor loss = nn::MseLoss(call.graph(), call.Wide(0), call.Wide(1), reduction);
  return Tensors{call.Narrow(loss, call.tensor(0))};
}

// (self, target, reduction, beta)
Outputs SmoothL1Loss(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 2));
  const Tensor loss =
      nn::SmoothL1Loss(call.graph(), call.Wide(0), call.Wide(1), reduction, call.number(3));
  return Tensors{call.Narrow(loss, call.tensor(0))};
}

Outputs HuberLoss(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 2));
  const Tensor loss =
      nn::HuberLoss(call.graph(), call.Wide(0), call.Wide(1), reduction, call.number(3));
  return Tensors{call.Narrow(loss, call.tensor(0))};
}

// (self, target, weight, reduction)
Outputs BinaryCrossEntropy(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 3));
  const Tensor weight = call.has(2) ? Tensor(call.Wide(2)) : Tensor{};
  const Tensor loss =
      nn::BinaryCrossEntropy(call.graph(), call.Wide(0), call.Wide(1), reduction, weight);
  return Tensors{call.Narrow(loss, call.tensor(0))};
}

// (self, target, weight, positive weight, reduction)
Outputs BinaryCrossEntropyWithLogits(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 4));
  nn::BceWithLogitsOptions options;
  if (call.has(2)) options.weight = call.Wide(2);
  if (call.has(3)) options.positive_weight = call.Wide(3);
  const Tensor loss = nn::BinaryCrossEntropyWithLogits(call.graph(), call.Wide(0), call.Wide(1),
                                                       reduction, options);
  return Tensors{call.Narrow(loss, call.tensor(0))};
}

// (self, target, reduction)
Outputs SoftMarginLoss(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 2));
  const Tensor loss = nn::SoftMarginLoss(call.graph(), call.Wide(0), call.Wide(1), reduction);
  return Tensors{call.Narrow(loss, call.tensor(0))};
}

// (self, target, p, margin, weight, reduction): for each row the mean over the classes, its own
// aside, of (margin - own score + score)^p where that is above 0, times the weight of its class.
Outputs MultiMarginLoss(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const nn::Reduction reduction, ReductionOf(call, 5));
  const double p = call.number(2);
  if (p != 1 && p != 2) return call.Refuse(absl::StrCat("power ", p, " must be 1 or 2"));
  const Tensor self = call.tensor(0);
  if (call.DimsOf(self).empty() || call.DimsOf(self).size() > 2)
    return call.Refuse(absl::StrCat("the scores are ", call.TypeOf(self).ToString(),
                                    ", must have 1 or 2 dimensions"));
  const Tensor rows = RowsOf(call, self);
  const int64_t n = call.DimsOf(rows)[0], classes = call.DimsOf(rows)[1];
  VPOD_ASSIGN_OR_RETURN(const Term label, LabelsOf(call, 1, n));
  const Term scores = call.Wide(rows);
  const Term own = call.Wide(OfLabels(call, rows, Column(call, label), /*along=*/true));
  const Term place(graph, graph.Iota({v1::INT32, {1, classes}}, 1));
  const Term is_own = place.Apply(v1::EQUAL, call.term(Column(call, label)));
  Term losses = Where(is_own, 0.0, Relu(scores - own + call.number(3)));
  if (p == 2) losses = Square(losses);
  losses = call.term(graph.Reduce(v1::MEAN, losses, {1}));
  if (call.has(4))
    losses = losses * call.Wide(OfLabels(call, call.tensor(4), label, /*along=*/false));
  if (reduction == nn::Reduction::kNone)
    return Tensors{call.Narrow(graph.Reshape(losses, call.DimsOf(call.tensor(1))), self)};
  const bool mean = reduction == nn::Reduction::kMean;
  return Tensors{call.Narrow(mean ? graph.Mean(losses) : graph.Sum(losses), self)};
}

constexpr char kNll[] = "tensor, tensor, tensor?, int, int";
constexpr char kNllBackward[] = "tensor, tensor, tensor, tensor?, int, int, tensor";

}  // namespace

std::vector<Row> LossRows() {
  return {
      {"_softmax.default", "tensor, int, bool", Softmax<false>},
      {"_softmax_backward_data.default", "tensor, tensor, int, type", SoftmaxBackward<false>},
      {"_log_softmax.default", "tensor, int, bool", Softmax<true>},
      {"_log_softmax_backward_data.default", "tensor, tensor, int, type", SoftmaxBackward<true>},
      {"nll_loss_forward.default", kNll, NllForward},
      {"nll_loss_backward.default", kNllBackward, NllBackward},
      {"nll_loss2d_forward.default", kNll, NllForward},
      {"nll_loss2d_backward.default", kNllBackward, NllBackward},
      {"mse_loss.default", "tensor, tensor, int=1", MseLoss},
      {"smooth_l1_loss.default", "tensor, tensor, int=1, number=1", SmoothL1Loss},
      {"huber_loss.default", "tensor, tensor, int=1, number=1", HuberLoss},
      {"soft_margin_loss.default", "tensor, tensor, int=1", SoftMarginLoss},
      {"multi_margin_loss.default", "tensor, tensor, number=1, number=1, tensor?=None, int=1",
       MultiMarginLoss},
      {"binary_cross_entropy.default", "tensor, tensor, tensor?=None, int=1", BinaryCrossEntropy},
      {"binary_cross_entropy_with_logits.default",
       "tensor, tensor, tensor?=None, tensor?=None, int=1", BinaryCrossEntropyWithLogits},
  };
}

}  // namespace vpod::aten
