// Functions of each element, and of two with broadcasting.
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

// For numbers of any type; the result has it, too.
template <v1::UnaryOperator kFunction>
Outputs Unary(const Call& call) {
  return Tensors{call.graph().Unary(kFunction, call.tensor(0))};
}

// For fractions: integers become FLOAT32.
template <v1::UnaryOperator kFunction>
Outputs OfFraction(const Call& call) {
  return Tensors{call.graph().Unary(kFunction, call.AsFloat(call.tensor(0)))};
}

// Integers are their own.
template <v1::UnaryOperator kFunction>
Outputs ToInteger(const Call& call) {
  const Tensor self = call.tensor(0);
  if (!program::IsFloat(call.TypeOf(self).type)) return Tensors{self};
  return Tensors{call.graph().Unary(kFunction, self)};
}

Outputs Fraction(const Call& call) {
  const Term self = call.term(call.tensor(0));
  return Tensors{self - self.Apply(v1::TRUNCATE)};
}

Term Truth(const Call& call, Tensor tensor) {
  return {call.graph(), call.graph().Cast(tensor, v1::BOOL)};
}

Outputs LogicalNot(const Call& call) {
  return Tensors{Truth(call, call.tensor(0)).Apply(v1::LOGICAL_NOT)};
}

Outputs BitwiseNot(const Call& call) {
  if (call.TypeOf(call.tensor(0)).type == v1::BOOL) return LogicalNot(call);
  return Unary<v1::BITWISE_NOT>(call);
}

Outputs IsNan(const Call& call) {
  const Term self = call.term(call.tensor(0));
  return Tensors{self.Apply(v1::NOT_EQUAL, self)};
}

template <v1::BinaryOperator kFunction>
Outputs Binary(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  return Tensors{operands.first.Apply(kFunction, operands.second)};
}

Tensor Number(const Call& call, Tensor flags) { return call.graph().Cast(flags, v1::UINT8); }

// Takes BOOL, too, as 0 and 1.
template <v1::BinaryOperator kFunction>
Outputs Compare(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const auto [a, b] = operands;
  if (call.TypeOf(a).type != v1::BOOL) return Tensors{a.Apply(kFunction, b)};
  return Tensors{call.term(Number(call, a)).Apply(kFunction, call.term(Number(call, b)))};
}

template <v1::BinaryOperator kFunction>
Outputs OfFractions(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const Term a = call.term(call.AsFloat(operands.first));
  return Tensors{a.Apply(kFunction, call.term(call.AsFloat(operands.second)))};
}

// a + factor × b, rounded once.
Outputs Sum(const Call& call, Term a, Term b, double factor) {
  if (factor == 1) return Tensors{a + b};
  if (factor == -1) return Tensors{a - b};
  return Tensors{call.Narrow(call.Wide(a) + call.Wide(b) * factor, a)};
}

Outputs Add(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  return Sum(call, operands.first, operands.second, call.number(2));
}

Outputs Subtract(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  return Sum(call, operands.first, operands.second, -call.number(2));
}

Outputs ReverseSubtract(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  return Sum(call, operands.second, operands.first, -call.number(2));
}

// Without the remainder the dividend is a multiple of the divisor, so that only a rounding keeps
// the quotient from being an integer. A fraction through 0 is what division gives.
Outputs FloorDivide(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const auto [a, b] = operands;
  const Term quotient = (a - a.Apply(v1::REMAINDER, b)) / b;
  if (!program::IsFloat(call.TypeOf(a).type)) return Tensors{quotient};
  return Tensors{Where(b == 0, a / b, quotient.Apply(v1::ROUND))};
}

Outputs DivideRounded(const Call& call) {
  if (!call.has(2)) return OfFractions<v1::DIVIDE>(call);
  if (call.text(2) == "floor") return FloorDivide(call);
  if (call.text(2) != "trunc") return call.Refuse("the rounding mode must be 'trunc' or 'floor'");
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const Term quotient = operands.first / operands.second;
  const bool floats = program::IsFloat(call.TypeOf(quotient).type);
  return Tensors{floats ? quotient.Apply(v1::TRUNCATE) : quotient};
}

template <v1::BinaryOperator kFunction>
Outputs Logical(const Call& call) {
  return Tensors{Truth(call, call.tensor(0)).Apply(kFunction, Truth(call, call.tensor(1)))};
}

// For BOOL it is the logical function.
template <v1::BinaryOperator kFunction, v1::BinaryOperator kLogical>
Outputs Bitwise(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const bool logical = call.TypeOf(operands.first).type == v1::BOOL;
  return Tensors{operands.first.Apply(logical ? kLogical : kFunction, operands.second)};
}

Outputs LogicalXor(const Call& call) {
  const Tensor a = Truth(call, call.tensor(0)), b = Truth(call, call.tensor(1));
  return Tensors{call.term(Number(call, a)).Apply(v1::NOT_EQUAL, call.term(Number(call, b)))};
}

Outputs BitwiseXor(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  if (call.TypeOf(operands.first).type == v1::BOOL) return Compare<v1::NOT_EQUAL>(call);
  return Tensors{operands.first.Apply(v1::BITWISE_XOR, operands.second)};
}

Outputs WhereSelf(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(1, 2));
  return Tensors{Where(Truth(call, call.tensor(0)), operands.first, operands.second)};
}

Outputs MaskedFill(const Call& call) {
  const Term self = call.term(call.tensor(0)), mask = Truth(call, call.tensor(1));
  if (!std::holds_alternative<Tensor>(call.at(2)))
    return Tensors{Where(mask, call.number(2), self)};
  const Tensor value = call.graph().Cast(call.tensor(2), call.TypeOf(self).type);
  return Tensors{Where(mask, call.term(value), self)};
}

// The elements, or those of a limit, a tensor or a number, where they are beyond it. The whole
// gradient passes where an element equals a limit, as in PyTorch.
absl::StatusOr<Term> Limited(const Call& call, v1::BinaryOperator beyond, Term x, size_t limit) {
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, limit));
  const v1::DataType type = PromotedType(call.TypeOf(x).type, call.TypeOf(operands.second).type);
  x = call.term(call.graph().Cast(x, type));
  const Term bound = call.term(call.graph().Cast(operands.second, type));
  return Where(x.Apply(beyond, bound), bound, x);
}

template <v1::BinaryOperator kBeyond>
Outputs ClampOneEnd(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Term result, Limited(call, kBeyond, call.term(call.tensor(0)), 1));
  return Tensors{result};
}

// (self, least, most): the second limit wins where they cross.
Outputs Clamp(const Call& call) {
  Term result = call.term(call.tensor(0));
  if (call.has(1)) {
    VPOD_ASSIGN_OR_RETURN(result, Limited(call, v1::LESS, result, 1));
  }
  if (call.has(2)) {
    VPOD_ASSIGN_OR_RETURN(result, Limited(call, v1::GREATER, result, 2));
  }
  return Tensors{result};
}

// self + value × (first × second), or (first / second).
template <bool kDivide>
Outputs AddCombined(const Call& call) {
  const Term first = call.Wide(1), second = call.Wide(2);
  const Term combined = kDivide ? first / second : first * second;
  return Tensors{call.Narrow(call.Wide(0) + combined * call.number(3), call.tensor(0))};
}

Outputs Lerp(const Call& call) {
  const Term self = call.Wide(0), end = call.Wide(1);
  const Term weight =
      std::holds_alternative<Tensor>(call.at(2)) ? call.Wide(2) : self.Number(call.number(2));
  return Tensors{call.Narrow(self + weight * (end - self), call.tensor(0))};
}

}  // namespace

std::vector<Row> UnaryRows() {
  return {
      {"abs.default", "tensor", Unary<v1::ABSOLUTE>},
      {"acos.default", "tensor", OfFraction<v1::ACOS>},
      {"acosh.default", "tensor", OfFraction<v1::ACOSH>},
      {"asin.default", "tensor", OfFraction<v1::ASIN>},
      {"asinh.default", "tensor", OfFraction<v1::ASINH>},
      {"atan.default", "tensor", OfFraction<v1::ATAN>},
      {"atanh.default", "tensor", OfFraction<v1::ATANH>},
      {"bitwise_not.default", "tensor", BitwiseNot},
      {"ceil.default", "tensor", ToInteger<v1::CEIL>},
      {"cos.default", "tensor", OfFraction<v1::COS>},
      {"cosh.default", "tensor", OfFraction<v1::COSH>},
      {"erf.default", "tensor", OfFraction<v1::ERF>},
      {"erfinv.default", "tensor", OfFraction<v1::ERF_INV>},
      {"exp.default", "tensor", OfFraction<v1::EXPONENT>},
      {"expm1.default", "tensor", OfFraction<v1::EXPM1>},
      {"floor.default", "tensor", ToInteger<v1::FLOOR>},
      {"frac.default", "tensor", Fraction},
      {"isnan.default", "tensor", IsNan},
      {"log.default", "tensor", OfFraction<v1::LOGARITHM>},
      {"log1p.default", "tensor", OfFraction<v1::LOG1P>},
      {"logical_not.default", "tensor", LogicalNot},
      {"neg.default", "tensor", Unary<v1::NEGATE>},
      {"reciprocal.default", "tensor", OfFraction<v1::RECIPROCAL>},
      {"round.default", "tensor", ToInteger<v1::ROUND>},
      {"rsqrt.default", "tensor", OfFraction<v1::RECIPROCAL_ROOT>},
      {"sign.default", "tensor", Unary<v1::SIGN>},
      {"sin.default", "tensor", OfFraction<v1::SIN>},
      {"sinh.default", "tensor", OfFraction<v1::SINH>},
      {"sqrt.default", "tensor", OfFraction<v1::SQUARE_ROOT>},
      {"square.default", "tensor", Unary<v1::SQUARE>},
      {"tan.default", "tensor", OfFraction<v1::TAN>},
      {"trunc.default", "tensor", ToInteger<v1::TRUNCATE>},
  };
}

std::vector<Row> BinaryRows() {
  std::vector<Row> rows = {
      {"add.Tensor", "operand, operand, number=1", Add},
      {"add.Scalar", "tensor, number, number=1", Add},
      {"sub.Tensor", "operand, operand, number=1", Subtract},
      {"sub.Scalar", "tensor, number, number=1", Subtract},
      {"rsub.Tensor", "tensor, operand, number=1", ReverseSubtract},
      {"rsub.Scalar", "tensor, number, number=1", ReverseSubtract},
      {"mul.Tensor", "operand, operand", Binary<v1::MULTIPLY>},
      {"mul.Scalar", "tensor, number", Binary<v1::MULTIPLY>},
      {"div.Tensor", "operand, operand", OfFractions<v1::DIVIDE>},
      {"div.Scalar", "tensor, number", OfFractions<v1::DIVIDE>},
      {"div.Tensor_mode", "operand, operand, text?=None", DivideRounded},
      {"div.Scalar_mode", "tensor, number, text?=None", DivideRounded},
      {"floor_divide.default", "operand, operand", FloorDivide},
      {"floor_divide.Scalar", "tensor, number", FloorDivide},
      {"pow.Tensor_Tensor", "tensor, tensor", Binary<v1::POWER>},
      {"pow.Tensor_Scalar", "tensor, number", Binary<v1::POWER>},
      {"pow.Scalar", "number, tensor", Binary<v1::POWER>},
      {"atan2.default", "tensor, tensor", OfFractions<v1::ATAN2>},
      {"maximum.default", "tensor, tensor", Binary<v1::MAXIMUM>},
      {"minimum.default", "tensor, tensor", Binary<v1::MINIMUM>},
      {"logical_and.default", "tensor, tensor", Logical<v1::LOGICAL_AND>},
      {"logical_or.default", "tensor, tensor", Logical<v1::LOGICAL_OR>},
      {"logical_xor.default", "tensor, tensor", LogicalXor},
      {"where.self", "tensor, operand, operand", WhereSelf},
      {"masked_fill.Scalar", "tensor, tensor, number", MaskedFill},
      {"masked_fill.Tensor", "tensor, tensor, operand", MaskedFill},
      {"clamp.default", "tensor, number?=None, number?=None", Clamp},
      {"clamp.Tensor", "tensor, tensor?=None, tensor?=None", Clamp},
      {"clamp_min.default", "tensor, number", ClampOneEnd<v1::LESS>},
      {"clamp_min.Tensor", "tensor, tensor", ClampOneEnd<v1::LESS>},
      {"clamp_max.default", "tensor, number", ClampOneEnd<v1::GREATER>},
      {"clamp_max.Tensor", "tensor, tensor", ClampOneEnd<v1::GREATER>},
      {"addcmul.default", "tensor, tensor, tensor, number=1", AddCombined<false>},
      {"addcdiv.default", "tensor, tensor, tensor, number=1", AddCombined<true>},
      {"lerp.Scalar", "tensor, tensor, number", Lerp},
      {"lerp.Tensor", "tensor, tensor, tensor", Lerp},
  };
  const std::pair<const char*, Outputs (*)(const Call&)> of_two[] = {
      {"eq", Compare<v1::EQUAL>},
      {"ne", Compare<v1::NOT_EQUAL>},
      {"lt", Compare<v1::LESS>},
      {"le", Compare<v1::LESS_EQUAL>},
      {"gt", Compare<v1::GREATER>},
      {"ge", Compare<v1::GREATER_EQUAL>},
      {"fmod", Binary<v1::FMOD>},
      {"remainder", Binary<v1::REMAINDER>},
      {"bitwise_and", Bitwise<v1::BITWISE_AND, v1::LOGICAL_AND>},
      {"bitwise_or", Bitwise<v1::BITWISE_OR, v1::LOGICAL_OR>},
      {"bitwise_xor", BitwiseXor},
  };
  for (const auto& [name, lower] : of_two) {
    rows.push_back({std::string(name) + ".Tensor", "operand, operand", lower});
    rows.push_back({std::string(name) + ".Scalar", "tensor, number", lower});
  }
  return rows;
}

}  // namespace vpod::aten
