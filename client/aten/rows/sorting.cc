// Sorting and what follows from it, such as extremes with their places; running extremes.
#include "absl/strings/str_cat.h"
#include "client/aten/rows/reductions.h"

namespace vpod::aten {
namespace {

// The first `count` of each sorted line, and their places.
Outputs Sorted(const Call& call, Tensor self, int64_t dimension, bool descending,
               std::optional<int64_t> count) {
  Graph& graph = call.graph();
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(dimension, dims.size()));
  const Tensor lines = dims.empty() ? graph.Reshape(self, {1}) : self;
  const Graph::Sorted sorted = graph.Sort(lines, axis, descending, count);
  VPOD_RETURN_IF_ERROR(graph.status());
  if (!dims.empty()) return Tensors{sorted.values, sorted.places};
  return Tensors{graph.Reshape(sorted.values, {}), graph.Reshape(sorted.places, {})};
}

// (self, dimension, descending)
Outputs Sort(const Call& call) {
  return Sorted(call, call.tensor(0), call.integer(1), call.flag(2), std::nullopt);
}

// (self, stable, dimension, descending): every sort is stable here.
Outputs StableSort(const Call& call) {
  return Sorted(call, call.tensor(0), call.integer(2), call.flag(3), std::nullopt);
}

// (self, count, dimension, largest, sorted)
Outputs TopK(const Call& call) {
  return Sorted(call, call.tensor(0), call.integer(2), call.flag(3), call.integer(1));
}

// (self, dimension, keep): the extreme of each line and its place, which takes the gradient.
template <bool kLargest>
Outputs ExtremeWithPlace(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensors sorted,
                        Sorted(call, call.tensor(0), call.integer(1), kLargest, 1));
  VPOD_ASSIGN_OR_RETURN(const Over over,
                        OverAxes(call, call.tensor(0), {call.integer(1)}, call.flag(2)));
  return Tensors{call.graph().Reshape(sorted[0], over.kept),
                 call.graph().Reshape(sorted[1], over.kept)};
}

// (self, dimension or None for all, keep)
template <bool kLargest>
Outputs PlaceOfExtreme(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  if (!call.has(1)) {
    const Tensor flat = graph.Reshape(self, {call.TypeOf(self).elements()});
    VPOD_ASSIGN_OR_RETURN(const Tensors sorted, Sorted(call, flat, 0, kLargest, 1));
    return Tensors{graph.Reshape(sorted[1], Dims(call.flag(2) ? call.DimsOf(self).size() : 0, 1))};
  }
  VPOD_ASSIGN_OR_RETURN(const Tensors extreme, ExtremeWithPlace<kLargest>(call));
  return Tensors{extreme[1]};
}

// Elements `begin` to before `end` along an axis.
Term Part(const Call& call, Tensor tensor, uint32_t axis, int64_t begin, int64_t end) {
  Dims first(call.DimsOf(tensor).size(), 0), size = call.DimsOf(tensor);
  first[axis] = begin;
  size[axis] = end - begin;
  return call.term(call.graph().Slice(tensor, first, size));
}

// The element of each line that half of the others follow in ascending order, the lower one of two,
// and its place. In a line with elements that are not a number it is the first of them.
Outputs Median(const Call& call, Tensor self, int64_t dimension, bool keep) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, self, {dimension}, keep));
  VPOD_ASSIGN_OR_RETURN(const Tensors sorted, Sorted(call, self, dimension, false, std::nullopt));
  if (over.axes.empty()) return sorted;
  const uint32_t axis = over.axes[0];
  Dims line = call.DimsOf(self);
  const int64_t n = line[axis];
  if (n == 0) return call.Refuse("there is no median of no elements");
  line[axis] = 1;
  const Term values = call.term(sorted[0]), unordered = values.Apply(v1::NOT_EQUAL, values);
  const Term count = call.term(
      graph.Reshape(graph.Reduce(v1::SUM, graph.Cast(unordered, v1::INT32), {axis}), line));
  const Term place =
      Where(count > 0, static_cast<double>(n) - count, static_cast<double>((n - 1) / 2));
  const auto chosen = [&](Tensor of) {
    return graph.Reshape(graph.Gather(of, place, axis, /*along=*/true), over.kept);
  };
  return Tensors{chosen(sorted[0]), chosen(sorted[1])};
}

// (self)
Outputs MedianOfAll(const Call& call) {
  const Tensor self = call.tensor(0);
  const Tensor flat = call.graph().Reshape(self, {call.TypeOf(self).elements()});
  VPOD_ASSIGN_OR_RETURN(const Tensors median, Median(call, flat, 0, false));
  return Tensors{median[0]};
}

// (self, dimension, keep)
Outputs MedianOver(const Call& call) {
  return Median(call, call.tensor(0), call.integer(1), call.flag(2));
}

// (self, number in ascending order, dimension, keep)
Outputs KthValue(const Call& call) {
  const Tensor self = call.tensor(0);
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, self, {call.integer(2)}, call.flag(3)));
  const int64_t k = call.integer(1), n = static_cast<int64_t>(over.count);
  if (k < 1 || k > n) return call.Refuse(absl::StrCat("number ", k, " must be 1 to ", n));
  VPOD_ASSIGN_OR_RETURN(const Tensors sorted, Sorted(call, self, call.integer(2), false, k));
  if (over.axes.empty()) return sorted;
  const auto last = [&](Tensor of) {
    return call.graph().Reshape(Part(call, of, over.axes[0], k - 1, k), over.kept);
  };
  return Tensors{last(sorted[0]), last(sorted[1])};
}

// (self, dimension): the extreme of each element and the elements before it, and its place, which
// takes the gradient. Of equal elements, or of several NaN, the last counts. Each round joins two
// neighbouring runs of elements whose extremes are known to one of twice the length.
template <bool kLargest>
Outputs RunningExtreme(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size()));
  if (dims.empty()) return Tensors{self, call.Scalar(v1::INT32, 0)};
  const int64_t n = dims[axis];
  Term values = call.term(graph.Stop(self)), places(graph, graph.Iota({v1::INT32, dims}, axis));
  for (int64_t known = 1; known < n && graph.status().ok(); known *= 2) {
    const auto earlier = [&](Tensor of) { return Part(call, of, axis, 0, n - known); };
    const auto later = [&](Tensor of) { return Part(call, of, axis, known, n); };
    const Term a = earlier(values), b = later(values);
    const Term is_better = b.Apply(kLargest ? v1::GREATER_EQUAL : v1::LESS_EQUAL, a);
    const Term replaces = is_better.Apply(v1::LOGICAL_OR, b.Apply(v1::NOT_EQUAL, b));
    const auto joined = [&](Tensor of) {
      const Term chosen = Where(replaces, later(of), earlier(of));
      return call.term(graph.Concat({Part(call, of, axis, 0, known), chosen}, axis));
    };
    values = joined(values);
    places = joined(places);
  }
  return Tensors{graph.Gather(self, places, axis, /*along=*/true), places};
}

}  // namespace

std::vector<Row> SortingRows() {
  return {
      {"max.dim", "tensor, int, bool=false", ExtremeWithPlace<true>},
      {"min.dim", "tensor, int, bool=false", ExtremeWithPlace<false>},
      {"argmax.default", "tensor, int?=None, bool=false", PlaceOfExtreme<true>},
      {"argmin.default", "tensor, int?=None, bool=false", PlaceOfExtreme<false>},
      {"median.default", "tensor", MedianOfAll},
      {"median.dim", "tensor, int, bool=false", MedianOver},
      {"kthvalue.default", "tensor, int, int=-1, bool=false", KthValue},
      {"cummax.default", "tensor, int", RunningExtreme<true>},
      {"cummin.default", "tensor, int", RunningExtreme<false>},
      {"sort.default", "tensor, int=-1, bool=false", Sort},
      {"sort.stable", "tensor, bool?, int=-1, bool=false", StableSort},
      {"topk.default", "tensor, int, int=-1, bool=true, bool=true", TopK},
  };
}

}  // namespace vpod::aten
