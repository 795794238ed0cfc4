// Sums, means, extremes and moments over dimensions; running sums.
#include "client/aten/rows/reductions.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace vpod::aten {

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

namespace {

// Integers add up to INT32, which stands for PyTorch's int64.
v1::DataType SumType(v1::DataType own) { return program::IsFloat(own) ? own : v1::INT32; }

absl::StatusOr<Tensor> Summand(const Call& call, size_t type) {
  const Tensor self = call.tensor(0);
  VPOD_ASSIGN_OR_RETURN(const v1::DataType chosen,
                        call.type(type, SumType(call.TypeOf(self).type)));
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

Outputs DeviationAndMean(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Moments moments, MomentsOf(call));
  return Tensors{call.Narrow(Sqrt(moments.variance), call.tensor(0)),
                 call.Narrow(moments.mean, call.tensor(0))};
}

Outputs VarianceAndMean(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Moments moments, MomentsOf(call));
  return Tensors{call.Narrow(moments.variance, call.tensor(0)),
                 call.Narrow(moments.mean, call.tensor(0))};
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

// (self, dimension): log(exp + …) of each element and those before it. In each round the sums of
// twice as many elements come from two that are known.
Outputs LogCumSumExp(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.AsFloat(call.tensor(0));
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size()));
  if (dims.empty()) return Tensors{self};
  Term sums = call.Wide(self);
  for (int64_t known = 1; known < dims[axis] && graph.status().ok(); known *= 2) {
    Dims begin(dims.size(), 0), rest = dims, first = dims;
    first[axis] = known;
    rest[axis] -= known;
    const Tensor head = graph.Slice(sums, begin, first);
    const Term earlier = call.term(graph.Slice(sums, begin, rest));
    begin[axis] = known;
    const Term later = call.term(graph.Slice(sums, begin, rest));
    sums = call.term(graph.Concat({head, LogAddExp(earlier, later)}, axis));
  }
  return Tensors{call.Narrow(sums, self)};
}

// --- Counts and sums of some elements ---

Term NonZeros(const Call& call, const Over& over) {
  const Tensor flags = call.graph().Cast(call.tensor(0), v1::BOOL);
  return Reduced(call, v1::SUM, call.graph().Cast(flags, v1::INT32), over);
}

// (self, dimensions)
Outputs CountNonZeroOver(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, call.tensor(0), call.ints(1), false));
  return Tensors{NonZeros(call, over)};
}

// (self, dimension)
Outputs CountNonZero(const Call& call) {
  const Dims chosen = call.has(1) ? Dims{call.integer(1)} : Dims{};
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, call.tensor(0), chosen, false));
  return Tensors{NonZeros(call, over)};
}

// (self, dimensions, keep, type): without what is not a number.
Outputs NanSum(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensor self, Summand(call, 3));
  VPOD_ASSIGN_OR_RETURN(const Over over, OverOf(call, 1));
  const Term x = call.term(self);
  return Tensors{Reduced(call, v1::SUM, Where(x.Apply(v1::EQUAL, x), x, 0.0), over)};
}

// (self, dimension, keep)
Outputs BothExtremes(const Call& call) {
  const Dims chosen = call.has(1) ? Dims{call.integer(1)} : Dims{};
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, call.tensor(0), chosen, call.flag(2)));
  return Tensors{Reduced(call, v1::MIN, call.tensor(0), over),
                 Reduced(call, v1::MAX, call.tensor(0), over)};
}

// (self): every element of the diagonal is a row's length and one behind the one before it.
Outputs Trace(const Call& call) {
  Graph& graph = call.graph();
  const TensorType own = call.TypeOf(call.tensor(0)), type{SumType(own.type), own.dims};
  const Tensor self = graph.Cast(call.tensor(0), type.type);
  if (type.rank() != 2) return call.Refuse(absl::StrCat(type.ToString(), " is not a matrix"));
  const Tensor flat = graph.Reshape(self, {type.elements()});
  const int64_t count = std::min(type.dims[0], type.dims[1]);
  return Tensors{graph.Reduce(v1::SUM, graph.Slice(flat, {0}, {count}, {type.dims[1] + 1}), {0})};
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
      {"any.dim", "tensor, ints, bool=false", TruthOver<v1::MAX>},
      {"any.default", "tensor", TruthOfAll<v1::MAX>},
      {"all.dim", "tensor, ints, bool=false", TruthOver<v1::MIN>},
      {"all.default", "tensor", TruthOfAll<v1::MIN>},
      {"var.correction", "tensor, ints?=None, int?=None, bool=false", Variance},
      {"std.correction", "tensor, ints?=None, int?=None, bool=false", Deviation},
      {"var_mean.correction", "tensor, ints?=None, int?=None, bool=false", VarianceAndMean},
      {"std_mean.correction", "tensor, ints?=None, int?=None, bool=false", DeviationAndMean},
      {"aminmax.default", "tensor, int?=None, bool=false", BothExtremes},
      {"count_nonzero.default", "tensor, int?=None", CountNonZero},
      {"count_nonzero.dim_IntList", "tensor, ints", CountNonZeroOver},
      {"nansum.default", "tensor, ints?=None, bool=false, type?=None", NanSum},
      {"trace.default", "tensor", Trace},
      {"logsumexp.default", "tensor, ints, bool=false", LogSumExp},
      {"logcumsumexp.default", "tensor, int", LogCumSumExp},
      {"cumsum.default", "tensor, int, type?=None", Cumulate<v1::SUM>},
      {"cumprod.default", "tensor, int, type?=None", Cumulate<v1::PRODUCT>},
  };
}

}  // namespace vpod::aten
