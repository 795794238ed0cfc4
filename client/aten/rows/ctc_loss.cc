// Connectionist temporal classification: the probability that a sequence of classes, without its
// blanks and repetitions, is the target. Graves et al., "Connectionist Temporal Classification",
// ICML 2006, section 4.1, in logarithms. The graph has the operations of every step of time.
#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Argument i, a list or a tensor, as INT32 [n].
absl::StatusOr<Term> Lengths(const Call& call, size_t i, int64_t n) {
  Graph& graph = call.graph();
  if (std::holds_alternative<Tensor>(call.at(i))) {
    const TensorType type = call.TypeOf(call.tensor(i));
    if (!program::IsInteger(type.type) || type.elements() != n) {
      return call.Refuse(
          absl::StrCat("the lengths are ", type.ToString(), ", must be ", n, " integers"));
    }
    return call.term(graph.Reshape(graph.Cast(call.tensor(i), v1::INT32), {n}));
  }
  const Dims lengths = call.ints(i);
  if (static_cast<int64_t>(lengths.size()) != n)
    return call.Refuse(absl::StrCat("has ", lengths.size(), " lengths, must have ", n));
  std::string elements(lengths.size() * sizeof(int32_t), '\0');
  for (size_t k = 0; k < lengths.size(); ++k) {
    if (lengths[k] < 0 || lengths[k] > program::kMaxElements)
      return call.Refuse(absl::StrCat("length ", lengths[k], " must be 0 or more"));
    const auto length = static_cast<int32_t>(lengths[k]);
    std::memcpy(elements.data() + k * sizeof(length), &length, sizeof(length));
  }
  return call.term(graph.Constant({v1::INT32, {n}}, std::move(elements)));
}

// The targets, argument 1, as INT32 [n, longest]. In one dimension they are one after the other.
absl::StatusOr<Tensor> Targets(const Call& call, int64_t n) {
  Graph& graph = call.graph();
  const TensorType type = call.TypeOf(call.tensor(1));
  const Tensor targets = graph.Cast(call.tensor(1), v1::INT32);
  if (program::IsInteger(type.type) && type.dims.size() == 2 && type.dims[0] == n) return targets;
  if (!program::IsInteger(type.type) || type.dims.size() != 1) {
    return call.Refuse(absl::StrCat("the targets are ", type.ToString(),
                                    ", must be integers, a row for each of ", n, " sequences"));
  }
  if (!std::holds_alternative<Dims>(call.at(3)))
    return call.Refuse("targets in one dimension need lengths that are not elements of a tensor");
  const Dims lengths = call.ints(3);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  Tensors rows;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    if (length > type.dims[0] - begin) {
      return call.Refuse(absl::StrCat("the lengths of the targets add up to more than the ",
                                      type.dims[0], " labels there are"));
    }
    const Tensor row = graph.Slice(targets, {begin}, {length});
    rows.push_back(graph.Reshape(graph.Pad(row, {0}, {longest - length}), {1, longest}));
    begin += length;
  }
  return graph.Concat(rows, 0);
}

// Moves the columns of [n, columns] to the right.
Tensor Shifted(const Call& call, Tensor rows, int64_t by, double fill) {
  const Dims dims = call.DimsOf(rows);
  by = std::min(by, dims[1]);
  const Tensor left = call.graph().Slice(rows, {0, 0}, {dims[0], dims[1] - by});
  return call.graph().Pad(left, {0, by}, {0, 0}, fill);
}

Term Column(const Call& call, Term vector) {
  return call.term(call.graph().Reshape(vector, {call.TypeOf(vector).elements(), 1}));
}

// The labels of each sequence with a blank around each of them, [n, 2 longest + 1]. Those behind
// its length are blank.
Term WithBlanks(const Call& call, Tensor targets, Term lengths, double blank) {
  Graph& graph = call.graph();
  const Dims dims = call.DimsOf(targets);
  const int64_t n = dims[0], longest = dims[1];
  const Term place(graph, graph.Iota({v1::INT32, {1, longest}}, 1));
  const Term inside = place.Apply(v1::LESS, Column(call, lengths));
  const Tensor labels = graph.Reshape(Where(inside, call.term(targets), blank), {n, longest, 1});
  const Tensor blanks = graph.Constant({v1::INT32, {n, longest, 1}}, blank);
  const Tensor pairs = graph.Reshape(graph.Concat({blanks, labels}, 2), {n, 2 * longest});
  return call.term(graph.Concat({pairs, graph.Constant({v1::INT32, {n, 1}}, blank)}, 1));
}

// Logarithms of the probabilities that the steps so far end at each place of the labels, for every
// step, [n, places] each; those behind the length of a sequence repeat its last.
Tensors Forward(const Call& call, Term log_probabilities, Term labels, Term lengths) {
  Graph& graph = call.graph();
  const int64_t steps = call.DimsOf(log_probabilities)[0], n = call.DimsOf(labels)[0],
                places = call.DimsOf(labels)[1];
  const Tensor index = graph.Expand(graph.Reshape(labels, {1, n, places}), {steps, n, places});
  const Tensor scores = graph.Gather(log_probabilities, index, 2, /*along=*/true, /*labels=*/true);
  const auto at = [&](int64_t step) {
    return call.term(graph.Reshape(graph.Slice(scores, {step, 0, 0}, {1, n, places}), {n, places}));
  };
  // A blank may be left out between two labels, but not between equal ones.
  const Term skips = labels.Apply(v1::NOT_EQUAL, call.term(Shifted(call, labels, 2, -1)));
  const Term place(graph, graph.Iota({v1::INT32, {1, places}}, 1));
  Tensors all = {Where(place > 1, kNever, at(0))};
  for (int64_t step = 1; step < steps && graph.status().ok(); ++step) {
    const Term before = call.term(all.back());
    const Term one = call.term(Shifted(call, before, 1, kNever));
    const Term two = Where(skips, call.term(Shifted(call, before, 2, kNever)), kNever);
    const Term next = LogAddExp(LogAddExp(before, one), two) + at(step);
    all.push_back(Where(Column(call, lengths) > static_cast<double>(step), next, before));
  }
  return all;
}

// (log probabilities [steps, n, classes], targets, input lengths, target lengths, blank, whether
// infinite losses are 0): the losses of the sequences, and Forward's results [n, steps, places].
Outputs CtcLoss(const Call& call) {
  Graph& graph = call.graph();
  const TensorType type = call.TypeOf(call.tensor(0));
  if (type.rank() != 3 || type.elements() == 0) {
    return call.Refuse(absl::StrCat("the probabilities are ", type.ToString(),
                                    ", must have steps, sequences and classes"));
  }
  const int64_t n = type.dims[1];
  if (call.integer(4) < 0 || call.integer(4) >= type.dims[2]) {
    return call.Refuse(absl::StrCat("blank ", call.integer(4), " must be 0 to ", type.dims[2] - 1));
  }
  VPOD_ASSIGN_OR_RETURN(const Term input_lengths, Lengths(call, 2, n));
  VPOD_ASSIGN_OR_RETURN(const Term target_lengths, Lengths(call, 3, n));
  VPOD_ASSIGN_OR_RETURN(const Tensor targets, Targets(call, n));
  VPOD_RETURN_IF_ERROR(graph.status());
  const Term labels = WithBlanks(call, targets, target_lengths, call.number(4));
  VPOD_RETURN_IF_ERROR(graph.status());
  const Tensors all = Forward(call, call.Wide(0), labels, input_lengths);
  VPOD_RETURN_IF_ERROR(graph.status());
  // A sequence ends at its last label or at the blank behind it.
  const auto at = [&](Term place) {
    const Tensor chosen = graph.Gather(all.back(), Column(call, place), 1, /*along=*/true);
    return call.term(graph.Reshape(chosen, {n}));
  };
  const Term empty = target_lengths == 0, blank = target_lengths * 2;
  const Term at_label = Where(empty, kNever, at(Where(empty, 0.0, blank - 1)));
  Term losses = -LogAddExp(at(blank), at_label);
  if (call.flag(5)) losses = Where(losses == -kNever, 0.0, losses);
  Tensors steps;
  const int64_t places = call.DimsOf(labels)[1];
  for (const Tensor step : all) steps.push_back(graph.Reshape(step, {n, 1, places}));
  return Tensors{call.Narrow(losses, call.tensor(0)),
                 call.Narrow(graph.Concat(steps, 1), call.tensor(0))};
}

}  // namespace

std::vector<Row> CtcRows() {
  return {
      {"_ctc_loss.default", "tensor, tensor, ints, ints, int=0, bool=false", CtcLoss},
      {"_ctc_loss.Tensor", "tensor, tensor, tensor, tensor, int=0, bool=false", CtcLoss},
  };
}

}  // namespace vpod::aten
