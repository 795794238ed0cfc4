// Functions of elements that are formulas over several operations of the graph. The formulas are in
// float32 and rounded once.
#include <cmath>
#include <limits>
#include <numbers>

#include "client/aten/call.h"

namespace vpod::aten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Term IsNan(Term x) { return x.Apply(v1::NOT_EQUAL, x); }
Term And(Term a, Term b) { return a.Apply(v1::LOGICAL_AND, b); }
Term Equal(Term a, Term b) { return a.Apply(v1::EQUAL, b); }
Term Larger(Term a, Term b) { return a.Apply(v1::MAXIMUM, b); }

// (self, …): integers become FLOAT32.
template <Term (*kFormula)(const Call& call, Term x)>
Outputs OfFraction(const Call& call) {
  const Tensor self = call.AsFloat(call.tensor(0));
  return Tensors{call.Narrow(kFormula(call, call.Wide(self)), self)};
}

// (self, other, …): both as fractions of the type to which PyTorch promotes them.
template <Term (*kFormula)(Term a, Term b)>
Outputs OfFractions(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const Tensor a = call.AsFloat(operands.first), b = call.AsFloat(operands.second);
  return Tensors{call.Narrow(kFormula(call.Wide(a), call.Wide(b)), a)};
}

Term Log2(const Call&, Term x) { return Log(x) / x.Number(std::numbers::ln2); }
Term Log10(const Call&, Term x) { return Log(x) / x.Number(std::numbers::ln10); }

// From 1 on 1 - erf(x) has few digits left. There, exp(-x^2) times t times a polynomial of t in the
// exponent has a relative error below 1.2e-7: Press et al., Numerical Recipes in C, 2nd edition,
// section 6.2 (erfcc). The gradient is that of 1 - erf(x).
Term ErrorFunctionComplement(const Call& call, Term x) {
  constexpr double kCoefficients[] = {0.17087277, -0.82215223, 1.48851587, -1.13520398,
                                      0.27886807, -0.18628806, 0.09678418, 0.37409196,
                                      1.00002368, -1.26551223};
  const Term plain = 1 - x.Apply(v1::ERF);
  const Term far = Max(x, 1);  // the polynomial is not used below
  const Term t = (far * 0.5 + 1).Apply(v1::RECIPROCAL);
  Term polynomial = x.Number(0);
  for (const double coefficient : kCoefficients) polynomial = polynomial * t + coefficient;
  const Term tail = t * Exp(polynomial - Square(far));
  const Term value = Where(x > 1, tail, plain);
  return call.term(call.graph().PassBy(value, plain));
}

// sin(pi x) / (pi x)
Term Sinc(const Call&, Term x) {
  const Term zero = x == 0, angle = Where(zero, 1, x) * std::numbers::pi;
  return Where(zero, 1, angle.Apply(v1::SIN) / angle);
}

// (self, epsilon): probabilities stay as far from 0 and 1.
Term Logit(const Call& call, Term x) {
  if (call.has(1)) {
    const double low = call.number(1), high = 1 - low;
    x = Where(x.Apply(v1::LESS, x.Number(low)), low, Where(x > high, high, x));
  }
  return Log(x / (1 - x));
}

// sqrt(a^2 + b^2), by parts of the larger one, whose squares are in range. The sum of their squares
// times a constant has the gradient of the whole.
Term Hypotenuse(Term a, Term b) {
  const Term larger = Larger(Abs(a), Abs(b));
  const Term usable = And(larger > 0, larger.Apply(v1::LESS, larger.Number(kInfinity)));
  const Term scale(a.graph(), a.graph().Stop(Where(usable, larger, 1)));
  const Term squares = Square(a / scale) + Square(b / scale), zero = squares == 0;
  return Where(zero, 0.0, Sqrt(Where(zero, 1, squares))) * scale;
}

// The distance of both, 0 for equal infinities.
Term Apart(Term a, Term b) { return Abs(Where(Equal(a, b), 0.0, a - b)); }

// log2(2^a + 2^b)
Term LogAddExp2(Term a, Term b) {
  const Term smaller = Exp(Apart(a, b) * -std::numbers::ln2);
  return Larger(a, b) + Log1p(smaller) * (1 / std::numbers::ln2);
}

// x log(y), 0 where x is, unless y is not a number. The slope by x is log(y) where that is finite,
// also if x is 0.
Term XLogY(Term x, Term y) {
  const Term finite = And(y > 0, y.Apply(v1::LESS, y.Number(kInfinity)));
  const Term none = And(x == 0, Equal(y, y));
  return Where(finite, x * Log(Where(finite, y, 1)), Where(none, 0.0, x * Log(Where(none, 1, y))));
}

// (self, for not-a-number, for infinity, for minus infinity): by default 0 and the ends of the
// type.
Outputs NanToNum(const Call& call) {
  const Term x = call.term(call.tensor(0));
  const v1::DataType type = call.TypeOf(x).type;
  if (!program::IsFloat(type)) return Tensors{x};
  constexpr double kLargestHalf = 65504;
  const double largest = type == v1::FLOAT16 ? kLargestHalf : std::numeric_limits<float>::max();
  const auto number = [&](size_t i, double otherwise) {
    return call.has(i) ? call.number(i) : otherwise;
  };
  const Term above = Where(x == kInfinity, number(2, largest), x);
  const Term finite = Where(x == -kInfinity, number(3, -largest), above);
  return Tensors{Where(IsNan(x), number(1, 0), finite)};
}

// (self, values): 0 below 0, 1 above it, and `values` at it.
Outputs Heaviside(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const auto [x, values] = operands;
  const Term step = call.term(call.graph().Cast(x > 0, call.TypeOf(x).type));
  return Tensors{Where(x == 0, values, step)};
}

Outputs IsInfinite(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  if (!program::IsFloat(type.type)) return Tensors{call.graph().Constant({v1::BOOL, type.dims}, 0)};
  return Tensors{Abs(call.term(call.tensor(0))) == kInfinity};
}

}  // namespace

Term LogAddExp(Term a, Term b) { return Larger(a, b) + Log1p(Exp(-Apart(a, b))); }

std::vector<Row> SpecialRows() {
  return {
      {"log2.default", "tensor", OfFraction<Log2>},
      {"log10.default", "tensor", OfFraction<Log10>},
      {"erfc.default", "tensor", OfFraction<ErrorFunctionComplement>},
      {"sinc.default", "tensor", OfFraction<Sinc>},
      {"logit.default", "tensor, number?=None", OfFraction<Logit>},
      {"hypot.default", "tensor, tensor", OfFractions<Hypotenuse>},
      {"logaddexp.default", "tensor, tensor", OfFractions<LogAddExp>},
      {"logaddexp2.default", "tensor, tensor", OfFractions<LogAddExp2>},
      {"xlogy.Tensor", "tensor, tensor", OfFractions<XLogY>},
      {"xlogy.Scalar_Self", "number, tensor", OfFractions<XLogY>},
      {"xlogy.Scalar_Other", "tensor, number", OfFractions<XLogY>},
      {"nan_to_num.default", "tensor, number?=None, number?=None, number?=None", NanToNum},
      {"heaviside.default", "tensor, tensor", Heaviside},
      {"isinf.default", "tensor", IsInfinite},
  };
}

}  // namespace vpod::aten
