// Norms of vectors, and what is made of them: distances, scaled vectors.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/aten/rows/reductions.h"

namespace vpod::aten {
namespace {

// Where the norm is 0 it has no gradient.
Term Root(Term sum, double p) {
  const Term safe = Where(sum == 0, 1.0, sum);
  const Term root = p == 2 ? Sqrt(safe) : safe.Apply(v1::POWER, safe.Number(1 / p));
  return Where(sum == 0, 0.0, root);
}

// The norm of the dimensions of x, of which float16 has no place for squares.
Term NormOf(const Call& call, Term x, double p, const Over& over) {
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
  return result;
}

Outputs Norm(const Call& call, Tensor self, double p, const Over& over) {
  return Tensors{call.Narrow(NormOf(call, call.Wide(self), p, over), self)};
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

// All dimensions but one, which stay as 1.
absl::StatusOr<Over> OverOthers(const Call& call, Tensor self, int64_t dimension) {
  const size_t rank = call.DimsOf(self).size();
  VPOD_ASSIGN_OR_RETURN(const uint32_t own, call.Axis(dimension, rank));
  Dims others;
  for (uint32_t axis = 0; axis < rank; ++axis) {
    if (axis != own) others.push_back(axis);
  }
  if (!others.empty()) return OverAxes(call, self, others, true);
  return Over{.axes = {}, .kept = call.DimsOf(self)};
}

// (first, second, p, a hint): the norm of the difference of each row [.., m, n] of one and each row
// [.., k, n] of the other, [.., m, k].
Outputs Distances(const Call& call) {
  Graph& graph = call.graph();
  const double p = call.number(2);
  if (!(p >= 0)) return call.Refuse(absl::StrCat("norm ", p, " must be 0 or more"));
  Dims first = call.DimsOf(call.tensor(0)), second = call.DimsOf(call.tensor(1));
  if (first.size() < 2 || second.size() < 2 || first.back() != second.back()) {
    return call.Refuse(absl::StrCat(call.TypeOf(call.tensor(0)).ToString(), " and ",
                                    call.TypeOf(call.tensor(1)).ToString(),
                                    " must be rows of one length"));
  }
  first.insert(first.end() - 1, 1);
  second.insert(second.end() - 2, 1);
  const Term apart = call.term(graph.Reshape(call.Wide(0), first)) -
                     call.term(graph.Reshape(call.Wide(1), second));
  VPOD_ASSIGN_OR_RETURN(const Over over, OverAxes(call, apart, {-1}, false));
  return Tensors{call.Narrow(NormOf(call, apart, p, over), call.tensor(0))};
}

// (self, p, dimension, largest norm): each slice along the dimension, scaled down to that norm.
Outputs Renorm(const Call& call) {
  constexpr double kEpsilon = 1e-7;  // PyTorch's, at::native::renorm
  const Term x = call.Wide(0);
  VPOD_ASSIGN_OR_RETURN(const Over others, OverOthers(call, x, call.integer(2)));
  const Term norm = NormOf(call, x, call.number(1), others);
  const Term larger = norm > call.number(3);
  const Term shrink = norm.Number(call.number(3)) / (Where(larger, norm, 1) + kEpsilon);
  return Tensors{call.Narrow(x * Where(larger, shrink, 1), call.tensor(0))};
}

// (v, g, dimension): v scaled to the norms g of its slices along the dimension; the norms of v.
Outputs WeightNorm(const Call& call) {
  const Term v = call.Wide(0);
  VPOD_ASSIGN_OR_RETURN(const Over others, OverOthers(call, v, call.integer(2)));
  const Term norm = NormOf(call, v, 2, others);
  return Tensors{call.Narrow(v * (call.Wide(1) / norm), call.tensor(0)),
                 call.Narrow(norm, call.tensor(1))};
}

}  // namespace

std::vector<Row> DistanceRows() {
  return {
      {"norm.ScalarOpt_dim", "tensor, number?, ints, bool=false", NormOver},
      {"norm.Scalar", "tensor, number=2", NormOfAll},
      {"linalg_vector_norm.default", "tensor, number=2, ints?=None, bool=false, type?=None",
       VectorNorm},
      {"_cdist_forward.default", "tensor, tensor, number, int?", Distances},
      {"renorm.default", "tensor, number, int, number", Renorm},
      {"_weight_norm_interface.default", "tensor, tensor, int=0", WeightNorm},
  };
}

}  // namespace vpod::aten
