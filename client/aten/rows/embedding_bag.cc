// Sums, means and maxima of the rows of an embedding that are in one bag.
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

enum class Mode { kSum, kMean, kMax };

// The arguments of an embedding bag, whose bags PyTorch gives in several forms.
struct Bags {
  Tensor indices;  // of the rows, INT32 [count]
  Term bag;        // to which each belongs, INT32 [count]
  Term counts;     // BOOL [count]: whether it is not padding
  int64_t count = 0, bags = 0;
};

absl::Status CheckVector(const Call& call, size_t i) {
  const TensorType type = call.TypeOf(call.tensor(i));
  if (program::IsInteger(type.type) && type.dims.size() == 1 && type.dims[0] > 0)
    return absl::OkStatus();
  return call.Refuse(
      absl::StrCat("argument ", i, " is ", type.ToString(), ", must be integers in one dimension"));
}

// A bag begins at each offset; one that is empty begins where the next does, or behind the end.
absl::StatusOr<Bags> BagsOf(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckVector(call, 1));
  VPOD_RETURN_IF_ERROR(CheckVector(call, 2));
  const int64_t count = call.DimsOf(call.tensor(1))[0];
  const int64_t bags = call.DimsOf(call.tensor(2))[0] - (call.flag(7) ? 1 : 0);
  if (bags < 1) return call.Refuse("needs an offset for each bag and one behind the last");
  const Tensor starts = graph.Slice(graph.Cast(call.tensor(2), v1::INT32), {0}, {bags});
  const Tensor begun = graph.Scatter(v1::Scatter::ADD, graph.Constant({v1::INT32, {count + 1}}, 0),
                                     starts, graph.Constant({v1::INT32, {bags}}, 1), 0);
  const Term number = call.term(graph.Cumulate(v1::SUM, graph.Slice(begun, {0}, {count}), 0));
  const Term indices = call.term(graph.Cast(call.tensor(1), v1::INT32));
  Term counts = call.term(graph.Constant({v1::BOOL, {count}}, 1));
  if (call.integer(8) >= 0) counts = indices.Apply(v1::NOT_EQUAL, indices.Number(call.number(8)));
  return Bags{indices, number - 1, counts, count, bags};
}

Term Column(const Call& call, Tensor vector) {
  return call.term(call.graph().Reshape(vector, {call.TypeOf(vector).elements(), 1}));
}

// The largest element of each column of a bag, the first of equals, which takes the gradient; 0 in
// an empty bag. The places of these elements in the rows come second.
std::pair<Term, Term> Maxima(const Call& call, const Bags& of, Term rows) {
  Graph& graph = call.graph();
  const int64_t columns = call.DimsOf(rows)[1];
  const double least = -std::numeric_limits<double>::infinity(),
               none = static_cast<double>(of.count);
  const Term values = Where(Column(call, of.counts), call.term(graph.Stop(rows)), least);
  const Tensor lowest = graph.Constant({v1::FLOAT32, {of.bags, columns}}, least);
  const Tensor most = graph.Scatter(v1::Scatter::MAX, lowest, of.bag, values, 0);
  const Term equal = values.Apply(v1::EQUAL, call.term(graph.Gather(most, of.bag, 0)))
                         .Apply(v1::LOGICAL_AND, Column(call, of.counts));
  const Term place(graph, graph.Iota({v1::INT32, {of.count, columns}}, 0));
  const Tensor last = graph.Constant({v1::INT32, {of.bags, columns}}, none);
  const Term first =
      call.term(graph.Scatter(v1::Scatter::MIN, last, of.bag, Where(equal, place, none), 0));
  const Term is_empty = first == none, chosen = Where(is_empty, 0.0, first);
  const Term maxima = call.term(graph.Gather(rows, chosen, 0, /*along=*/true));
  return {Where(is_empty, 0.0, maxima), chosen};
}

// (weight, indices, offsets, scale by frequency, mode, sparse, weights of the indices, whether the
// last offset is the end, padding): the result, the bag of each index, the sizes of the bags, and
// the row of each maximum.
Outputs EmbeddingBag(const Call& call) {
  Graph& graph = call.graph();
  if (call.flag(3)) return call.Refuse("gradients scaled by the frequency of rows are not known");
  if (call.integer(4) < 0 || call.integer(4) > 2)
    return call.Refuse(absl::StrCat("mode ", call.integer(4), " must be 0 to 2"));
  const auto mode = static_cast<Mode>(call.integer(4));
  if (call.has(6) && mode != Mode::kSum)
    return call.Refuse("only a sum has weights of the indices");
  const TensorType weight = call.TypeOf(call.tensor(0));
  if (weight.rank() != 2)
    return call.Refuse(absl::StrCat("the weight is ", weight.ToString(), ", must be a matrix"));
  VPOD_ASSIGN_OR_RETURN(const Bags of, BagsOf(call));
  Term rows = call.Wide(graph.Gather(call.tensor(0), of.indices, 0));
  if (call.has(6)) rows = rows * Column(call, call.Wide(6));
  const Tensor sizes = graph.Scatter(v1::Scatter::ADD, graph.Constant({v1::INT32, {of.bags}}, 0),
                                     of.bag, graph.Cast(of.counts, v1::INT32), 0);
  if (mode == Mode::kMax) {
    const auto [maxima, places] = Maxima(call, of, rows);
    return Tensors{call.Narrow(maxima, call.tensor(0)), of.bag, sizes,
                   graph.Gather(of.indices, places, 0)};
  }
  const Tensor zeros = graph.Constant({v1::FLOAT32, {of.bags, weight.dims[1]}}, 0);
  Term sums = call.term(
      graph.Scatter(v1::Scatter::ADD, zeros, of.bag, Where(Column(call, of.counts), rows, 0.0), 0));
  if (mode == Mode::kMean) sums = sums / Max(Column(call, graph.Cast(sizes, v1::FLOAT32)), 1);
  const Tensor no_maxima = graph.Constant({v1::INT32, {of.bags}}, 0);
  return Tensors{call.Narrow(sums, call.tensor(0)), of.bag, sizes, no_maxima};
}

constexpr char kParameters[] =
    "tensor, tensor, tensor, bool=false, int=0, bool=false, tensor?=None, bool=false, int=-1";

}  // namespace

std::vector<Row> EmbeddingBagRows() {
  return {
      {"_embedding_bag.default", kParameters, EmbeddingBag},
      {"_embedding_bag_forward_only.default", kParameters, EmbeddingBag},
  };
}

}  // namespace vpod::aten
