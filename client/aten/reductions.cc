// Sums, means, extremes and norms over dimensions; running sums, sorting and what follows from it.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

// The dimensions that are reduced, and those of the result.
struct Over {
  std::vector<uint32_t> axes;
  Dims kept;  // dimensions of the result, if they do
  double count = 1;
};

absl::StatusOr<Over> OverAxes(const Call& call, Tensor self, const Dims& chosen, bool keep) {
  Dims dims = call.DimsOf(self);
  Over over;
  VPOD_ASSIGN_OR_RETURN(over.axes, call.Axes(chosen, dims.size()));
  for (uint32_t axis : over.axes) over.count *= static_cast<double>(dims[axis]);
  for (uint32_t axis : over.axes) dims[axis] = keep ? 1 : -1;
  std::erase(dims, -1);
  over.kept = dims;
  return over;
}

// Argument i has the dimensions, the next says whether they stay as 1.
absl::StatusOr<Over> OverOf(const Call& call, size_t i) {
  return OverAxes(call, call.tensor(0), call.ints(i), call.flag(i + 1));
}

Term Reduced(const Call& call, v1::ReduceOperator function, Tensor self, const Over& over) {
  return call.term(call.graph().Reshape(call.graph().Reduce(function, self, over.axes), over.kept));
}

// Integers add up to INT32, which stands for PyTorch's int64.
absl::StatusOr<Tensor> Summand(const Call& call, size_t type) {
  const Tensor self = call.tensor(0);
  const v1::DataType own = call.TypeOf(self).type;
  VPOD_ASSIGN_OR_RETURN(const v1::DataType chosen,
                        call.type(type, program::IsFloat(own) ? own : v1::INT32));
  return call.graph().Cast(self, chosen);
}

// (self, dimensions, keep, type)
template <v1::ReduceOperator kFunction>
Outputs ReduceOver(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensor self, Summand(call, 3));
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 1));
  return Tensors{Reduced(call, kFunction, self, over)};
}

// (self, type)
template <v1::ReduceOperator kFunction>
Outputs ReduceAll(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensor self, Summand(call, 1));
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, self, {}, false));
  return Tensors{Reduced(call, kFunction, self, over)};
}

// (self, dimensions, keep)
template <v1::ReduceOperator kFunction>
Outputs Extreme(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 1));
  return Tensors{Reduced(call, kFunction, call.tensor(0), over)};
}

template <v1::ReduceOperator kFunction>
Outputs ExtremeOfAll(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, call.tensor(0), {}, false));
  return Tensors{Reduced(call, kFunction, call.tensor(0), over)};
}

// Whether any or all are true.
template <v1::ReduceOperator kFunction>
Term Truth(const Call& call, const Over& over) {
  const Tensor flags = call.graph().Cast(call.graph().Cast(call.tensor(0), v1::BOOL), v1::INT32);
  return call.term(call.graph().Cast(Reduced(call, kFunction, flags, over), v1::BOOL));
}

template <v1::ReduceOperator kFunction>
Outputs TruthOver(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 1));
  return Tensors{Truth<kFunction>(call, over)};
}

template <v1::ReduceOperator kFunction>
Outputs TruthOfAll(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, call.tensor(0), {}, false));
  return Tensors{Truth<kFunction>(call, over)};
}

struct Moments {
  Term mean, variance;
};

// (self, dimensions, correction, keep)
absl::StatusOr<Moments> MomentsOf(const Call& call) {
  const Term x = call.Wide(0);
  VPOD_ASSIGN_OR_RETURN(const Over kept, OverAxes(call, x, call.ints(1), true));
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, x, call.ints(1), call.flag(3)));
  const double correction = call.has(2) ? call.number(2) : 1;
  const Term mean = Reduced(call, v1::MEAN, x, kept);
  const Term squares = Reduced(call, v1::SUM, Square(x - mean), over);
  // A divisor that is not above 0 gives NaN or infinity, as in PyTorch.
  const Term variance = squares / squares.Number(std::max(over.count - correction, 0.0));
  return Moments{call.term(call.graph().Reshape(mean, over.kept)), variance};
}

Outputs Variance(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Moments moments, MomentsOf(call));
  return Tensors{call.Narrow(moments.variance, call.tensor(0))};
}

Outputs Deviation(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Moments moments, MomentsOf(call));
  return Tensors{call.Narrow(Sqrt(moments.variance), call.tensor(0))};
}

Outputs VarianceAndMean(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Moments moments, MomentsOf(call));
  return Tensors{call.Narrow(moments.variance, call.tensor(0)),
                 call.Narrow(moments.mean, call.tensor(0))};
}

// Where the norm is 0 it has no gradient.
Term Root(Term sum, double p) {
  const Term safe = Where(sum == 0, 1.0, sum);
  const Term root = p == 2 ? Sqrt(safe) : safe.Apply(v1::POWER, safe.Number(1 / p));
  return Where(sum == 0, 0.0, root);
}

Outputs Norm(const Call& call, Tensor self, double p, const Over& over) {
  const Term x = call.Wide(self);
  const auto reduced = [&](v1::ReduceOperator function, Term term) {
    return Reduced(call, function, term, over);
  };
  Term result = x;
  if (p == 2) {
    result = Root(reduced(v1::SUM, Square(x)), 2);
  } else if (p == 1) {
    result = reduced(v1::SUM, Abs(x));
  } else if (p == 0) {
    result = reduced(v1::SUM, Where(x == 0, x.Number(0), 1.0));
  } else if (std::isinf(p)) {
    result = reduced(p > 0 ? v1::MAX : v1::MIN, Abs(x));
  } else {
    result = Root(reduced(v1::SUM, Abs(x).Apply(v1::POWER, x.Number(p))), p);
  }
  return Tensors{call.Narrow(result, self)};
}

// (self, p, dimensions, keep)
Outputs NormOver(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 2));
  return Norm(call, call.tensor(0), call.has(1) ? call.number(1) : 2, over);
}

// (self, p, dimensions, keep, type)
Outputs VectorNorm(const Call& call) {
  const Tensor self = call.tensor(0);
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(4, call.TypeOf(self).type));
  if (!program::IsFloat(type)) {
    return call.Refuse(absl::StrCat("type ", program::Name(type), " must be float16 or float32"));
  }
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 2));
  return Norm(call, call.graph().Cast(self, type), call.number(1), over);
}

Outputs NormOfAll(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, call.tensor(0), {}, false));
  return Norm(call, call.tensor(0), call.number(1), over);
}

// (self, dimensions, keep)
Outputs LogSumExp(const Call& call) {
  const Tensor self = call.AsFloat(call.tensor(0));
  const Term x = call.Wide(self);
  VPOD_ASSIGN_OR_RETURN(const Over kept, OverAxes(call, x, call.ints(1), true));
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 1));
  const Term most = Reduced(call, v1::MAX, x, kept);
  // Infinities are not subtracted from themselves. The shift takes no gradient.
  const Term shift = Where(Abs(most) == std::numeric_limits<double>::infinity(), 0.0, most);
  const Term sum = Log(Reduced(call, v1::SUM, Exp(x - shift), over));
  return Tensors{call.Narrow(sum + call.term(call.graph().Reshape(shift, over.kept)), self)};
}

// (self, dimension, type)
template <v1::ReduceOperator kFunction>
Outputs Cumulate(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensor self, Summand(call, 2));
  const size_t rank = call.DimsOf(self).size();
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), rank));
  return Tensors{rank == 0 ? self : call.graph().Cumulate(kFunction, self, axis)};
}

// --- Sorting ---

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

}  // namespace

std::vector<Row> ReductionRows() {
  return {
      {"sum.dim_IntList", "tensor, ints?, bool=false, type?=None", ReduceOver<v1::SUM>},
      {"sum.default", "tensor, type?=None", ReduceAll<v1::SUM>},
      {"mean.dim", "tensor, ints?, bool=false, type?=None", ReduceOver<v1::MEAN>},
      {"mean.default", "tensor, type?=None", ReduceAll<v1::MEAN>},
      {"prod.dim_int", "tensor, ints, bool=false, type?=None", ReduceOver<v1::PRODUCT>},
      {"prod.default", "tensor, type?=None", ReduceAll<v1::PRODUCT>},
      {"amax.default", "tensor, ints=[], bool=false", Extreme<v1::MAX>},
      {"amin.default", "tensor, ints=[], bool=false", Extreme<v1::MIN>},
      {"max.default", "tensor", ExtremeOfAll<v1::MAX>},
      {"min.default", "tensor", ExtremeOfAll<v1::MIN>},
      {"max.dim", "tensor, int, bool=false", ExtremeWithPlace<true>},
      {"min.dim", "tensor, int, bool=false", ExtremeWithPlace<false>},
      {"argmax.default", "tensor, int?=None, bool=false", PlaceOfExtreme<true>},
      {"argmin.default", "tensor, int?=None, bool=false", PlaceOfExtreme<false>},
      {"any.dim", "tensor, ints, bool=false", TruthOver<v1::MAX>},
      {"any.default", "tensor", TruthOfAll<v1::MAX>},
      {"all.dim", "tensor, ints, bool=false", TruthOver<v1::MIN>},
      {"all.default", "tensor", TruthOfAll<v1::MIN>},
      {"var.correction", "tensor, ints?=None, int?=None, bool=false", Variance},
      {"std.correction", "tensor, ints?=None, int?=None, bool=false", Deviation},
      {"var_mean.correction", "tensor, ints?=None, int?=None, bool=false", VarianceAndMean},
      {"norm.ScalarOpt_dim", "tensor, number?, ints, bool=false", NormOver},
      {"norm.Scalar", "tensor, number=2", NormOfAll},
      {"linalg_vector_norm.default", "tensor, number=2, ints?=None, bool=false, type?=None",
       VectorNorm},
      {"logsumexp.default", "tensor, ints, bool=false", LogSumExp},
      {"cumsum.default", "tensor, int, type?=None", Cumulate<v1::SUM>},
      {"cumprod.default", "tensor, int, type?=None", Cumulate<v1::PRODUCT>},
      {"sort.default", "tensor, int=-1, bool=false", Sort},
      {"sort.stable", "tensor, bool?, int=-1, bool=false", StableSort},
      {"topk.default", "tensor, int, int=-1, bool=true, bool=true", TopK},
  };
}

}  // namespace vpod::aten
