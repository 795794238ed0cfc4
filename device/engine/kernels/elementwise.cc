#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "device/base/simd.h"
#include "device/engine/kernels/block_function.h"
#include "device/engine/kernels/convert.h"
#include "device/engine/kernels/relu.h"
#include "device/engine/kernels/vector_math.h"
#include "device/program/unhandled.h"

namespace vpod::engine {
namespace {

// --- Unary ---

// -1, 0 or 1; 0 for not-a-number.
VPOD_SIMD void SignFloats(const float* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(in[i] > 0 ? 1 : 0) - static_cast<float>(in[i] < 0 ? 1 : 0);
}

VPOD_SIMD void UnaryFloats(program::v1::UnaryOperator op, const float* in, float* out, size_t n) {
  const auto apply = [&](auto f) {
    for (size_t i = 0; i < n; ++i) out[i] = f(in[i]);
  };
  switch (op) {
    case program::v1::NEGATE:
      return apply([](float x) { return -x; });
    case program::v1::ABSOLUTE:
      return apply([](float x) { return std::fabs(x); });
    case program::v1::EXPONENT:
      return Exp(in, out, n);
    case program::v1::LOGARITHM:
      return Log(in, out, n);
    case program::v1::SQUARE_ROOT:
      return apply([](float x) { return std::sqrt(x); });
    case program::v1::SQUARE:
      return apply([](float x) { return x * x; });
    case program::v1::TANH:
      return Tanh(in, out, n);
    case program::v1::SIGMOID:
      return Sigmoid(in, out, n);
    case program::v1::RELU:
      return apply([](float x) { return ReluOf(x); });
    case program::v1::RELU6:
      return apply([](float x) { return Relu6Of(x); });
    case program::v1::SILU:
      return Silu(in, out, n);
    case program::v1::RECIPROCAL:
      return apply([](float x) { return 1.0f / x; });
    case program::v1::ERF_INV:
      return ErfInv(in, out, n);
    case program::v1::ERF:
      return Erf(in, out, n);
    case program::v1::SIN:
      return Sin(in, out, n);
    case program::v1::COS:
      return Cos(in, out, n);
    case program::v1::TAN:
      return Tan(in, out, n);
    case program::v1::ASIN:
      return Asin(in, out, n);
    case program::v1::ACOS:
      return Acos(in, out, n);
    case program::v1::ATAN:
      return Atan(in, out, n);
    case program::v1::SINH:
      return Sinh(in, out, n);
    case program::v1::COSH:
      return Cosh(in, out, n);
    case program::v1::ASINH:
      return Asinh(in, out, n);
    case program::v1::ACOSH:
      return Acosh(in, out, n);
    case program::v1::ATANH:
      return Atanh(in, out, n);
    case program::v1::EXPM1:
      return Expm1(in, out, n);
    case program::v1::LOG1P:
      return Log1p(in, out, n);
    case program::v1::RECIPROCAL_ROOT:
      return apply([](float x) { return 1.0f / std::sqrt(x); });
    case program::v1::FLOOR:
      return Floor(in, out, n);
    case program::v1::CEIL:
      return Ceil(in, out, n);
    case program::v1::ROUND:
      return Round(in, out, n);
    case program::v1::TRUNCATE:
      return Truncate(in, out, n);
    case program::v1::SIGN:
      return SignFloats(in, out, n);
    default:
      program::Unhandled("unary operator of floats", op);
  }
}

// Unsigned arithmetic wraps as the device's does.
template <class T>
void UnaryIntegers(program::v1::UnaryOperator op, const T* in, T* out, size_t n) {
  const auto apply = [&](auto f) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<T>(f(static_cast<uint32_t>(in[i]), in[i]));
  };
  switch (op) {
    case program::v1::NEGATE:
      return apply([](uint32_t bits, T) { return 0u - bits; });
    case program::v1::ABSOLUTE:
      return apply([](uint32_t bits, T x) { return x < 0 ? 0u - bits : bits; });
    case program::v1::SQUARE:
      return apply([](uint32_t bits, T) { return bits * bits; });
    case program::v1::SIGN:
      return apply([](uint32_t, T x) { return (x > 0 ? 1u : 0u) - (x < 0 ? 1u : 0u); });
    case program::v1::BITWISE_NOT:
      return apply([](uint32_t bits, T) { return ~bits; });
    case program::v1::RELU:
      return apply([](uint32_t bits, T x) { return x < 0 ? 0u : bits; });
    default:
      program::Unhandled("unary operator of integers", op);
  }
}

// --- Binary ---

// One row. The three shapes of rows are separate loops, so that each vectorises.
template <class T, class R, class F>
inline __attribute__((always_inline)) void Row(const T* a, bool a_moves, const T* b, bool b_moves,
                                               R* out, size_t n, F f) {
  if (a_moves && b_moves) {
    for (size_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  } else if (a_moves) {
    const T right = b[0];
    for (size_t i = 0; i < n; ++i) out[i] = f(a[i], right);
  } else if (b_moves) {
    const T left = a[0];
    for (size_t i = 0; i < n; ++i) out[i] = f(left, b[i]);
  } else {
    std::fill_n(out, n, f(a[0], b[0]));
  }
}

using FloatFunction = void (*)(const float*, bool, const float*, bool, float*, size_t);

#define VPOD_FLOAT_ROW(name, expression)                                                        \
  VPOD_SIMD void name(const float* a, bool am, const float* b, bool bm, float* out, size_t n) { \
    Row(a, am, b, bm, out, n, [](float x, float y) { return expression; });                     \
  }
VPOD_FLOAT_ROW(AddRow, x + y)
VPOD_FLOAT_ROW(SubtractRow, x - y)
VPOD_FLOAT_ROW(MultiplyRow, x* y)
VPOD_FLOAT_ROW(DivideRow, x / y)
// Not-a-number on either side is the result.
VPOD_FLOAT_ROW(MaximumRow, x > y || x != x ? x : y)
VPOD_FLOAT_ROW(MinimumRow, x < y || x != x ? x : y)
VPOD_FLOAT_ROW(ReluGradientRow, ReluGradientOf(x, y))
VPOD_FLOAT_ROW(Relu6GradientRow, Relu6GradientOf(x, y))
VPOD_FLOAT_ROW(TanhGradientRow, (1 - x * x) * y)
VPOD_FLOAT_ROW(SigmoidGradientRow, x*(1 - x) * y)
#undef VPOD_FLOAT_ROW

// The C library's is exact.
void FmodRow(const float* a, bool am, const float* b, bool bm, float* out, size_t n) {
  Row(a, am, b, bm, out, n, [](float x, float y) { return std::fmod(x, y); });
}
void RemainderRow(const float* a, bool am, const float* b, bool bm, float* out, size_t n) {
  Row(a, am, b, bm, out, n, [](float x, float y) {
    const float rest = std::fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  });
}

// A row for functions that take blocks: an operand that does not move is repeated.
template <void (*function)(const float*, const float*, float*, size_t)>
void RepeatedRow(const float* a, bool am, const float* b, bool bm, float* out, size_t n) {
  constexpr size_t kBlock = 256;
  float repeated[kBlock];
  if (am && bm) return function(a, b, out, n);
  std::fill_n(repeated, kBlock, am ? *b : *a);
  const float other = am ? 0 : *b;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    if (am) {
      function(a + first, repeated, out + first, count);
    } else if (bm) {
      function(repeated, b + first, out + first, count);
    } else {
      float one = 0;
      function(repeated, &other, &one, 1);
      std::fill_n(out + first, count, one);
    }
  }
}

FloatFunction FindFloatFunction(program::v1::BinaryOperator op) {
  switch (op) {
    case program::v1::ADD:
      return AddRow;
    case program::v1::SUBTRACT:
      return SubtractRow;
    case program::v1::MULTIPLY:
      return MultiplyRow;
    case program::v1::DIVIDE:
      return DivideRow;
    case program::v1::MAXIMUM:
      return MaximumRow;
    case program::v1::MINIMUM:
      return MinimumRow;
    case program::v1::RELU_GRADIENT:
      return ReluGradientRow;
    case program::v1::RELU6_GRADIENT:
      return Relu6GradientRow;
    case program::v1::SILU_GRADIENT:
      return RepeatedRow<SiluGradient>;
    case program::v1::TANH_GRADIENT:
      return TanhGradientRow;
    case program::v1::POWER:
      return RepeatedRow<Power>;
    case program::v1::ATAN2:
      return RepeatedRow<Atan2>;
    case program::v1::REMAINDER:
      return RemainderRow;
    case program::v1::FMOD:
      return FmodRow;
    case program::v1::SIGMOID_GRADIENT:
      return SigmoidGradientRow;
    default:
      program::Unhandled("binary operator of floats", op);
  }
}

template <class T>
VPOD_SIMD void CompareRow(program::v1::BinaryOperator op, const T* a, bool am, const T* b, bool bm,
                          uint8_t* out, size_t n) {
  const auto apply = [&](auto f) { Row(a, am, b, bm, out, n, f); };
  switch (op) {
    case program::v1::EQUAL:
      return apply([](T x, T y) -> uint8_t { return x == y; });
    case program::v1::NOT_EQUAL:
      return apply([](T x, T y) -> uint8_t { return x != y; });
    case program::v1::LESS:
      return apply([](T x, T y) -> uint8_t { return x < y; });
    case program::v1::LESS_EQUAL:
      return apply([](T x, T y) -> uint8_t { return x <= y; });
    case program::v1::GREATER:
      return apply([](T x, T y) -> uint8_t { return x > y; });
    case program::v1::GREATER_EQUAL:
      return apply([](T x, T y) -> uint8_t { return x >= y; });
    case program::v1::LOGICAL_AND:
      return apply([](T x, T y) -> uint8_t { return x != 0 && y != 0; });
    case program::v1::LOGICAL_OR:
      return apply([](T x, T y) -> uint8_t { return x != 0 || y != 0; });
    default:
      program::Unhandled("binary operator with a BOOL result", op);
  }
}

// Wraps. A negative exponent gives the quotient 1 / base^-exponent: 0 unless the base is 1 or -1.
template <class T>
T IntegerPower(T base, T exponent) {
  const auto wide = static_cast<int64_t>(exponent);
  if (wide < 0) {
    const auto of_base = static_cast<int64_t>(base);
    if (of_base == 1 || (of_base == -1 && wide % 2 == 0)) return 1;
    return of_base == -1 ? base : 0;
  }
  uint32_t power = 1, square = static_cast<uint32_t>(base);
  for (int64_t rest = wide; rest != 0; rest >>= 1) {
    if (rest % 2 == 1) power *= square;
    square *= square;
  }
  return static_cast<T>(power);
}

// By as many places as there are bits, if `by` is below 0 or above that.
template <class T>
T Shift(T x, T by, bool left) {
  constexpr int64_t kBits = 8 * sizeof(T);
  const auto wide = static_cast<int64_t>(by);
  const int64_t places = wide < 0 ? kBits : std::min(wide, kBits);
  return static_cast<T>(left ? static_cast<int64_t>(static_cast<uint64_t>(x) << places)
                             : static_cast<int64_t>(x) >> places);
}

// Integers wrap, as does the one quotient that does not fit; a division by zero gives 0.
template <class T>
void IntegerRow(program::v1::BinaryOperator op, const T* a, bool am, const T* b, bool bm, T* out,
                size_t n) {
  const auto apply = [&](auto f) { Row(a, am, b, bm, out, n, f); };
  const auto u = [](T x) { return static_cast<uint32_t>(x); };
  switch (op) {
    case program::v1::ADD:
      return apply([u](T x, T y) { return static_cast<T>(u(x) + u(y)); });
    case program::v1::SUBTRACT:
      return apply([u](T x, T y) { return static_cast<T>(u(x) - u(y)); });
    case program::v1::MULTIPLY:
      return apply([u](T x, T y) { return static_cast<T>(u(x) * u(y)); });
    case program::v1::DIVIDE:
      return apply([](T x, T y) -> T {
        return y == 0 ? 0 : static_cast<T>(static_cast<int64_t>(x) / static_cast<int64_t>(y));
      });
    case program::v1::MAXIMUM:
      return apply([](T x, T y) { return std::max(x, y); });
    case program::v1::POWER:
      return apply(IntegerPower<T>);
    case program::v1::FMOD:
      return apply([](T x, T y) -> T {
        return y == 0 ? 0 : static_cast<T>(static_cast<int64_t>(x) % static_cast<int64_t>(y));
      });
    case program::v1::REMAINDER:
      return apply([](T x, T y) -> T {
        if (y == 0) return 0;
        const int64_t rest = static_cast<int64_t>(x) % static_cast<int64_t>(y);
        return static_cast<T>(rest != 0 && (rest < 0) != (y < 0) ? rest + static_cast<int64_t>(y)
                                                                 : rest);
      });
    case program::v1::BITWISE_AND:
      return apply([u](T x, T y) { return static_cast<T>(u(x) & u(y)); });
    case program::v1::BITWISE_OR:
      return apply([u](T x, T y) { return static_cast<T>(u(x) | u(y)); });
    case program::v1::BITWISE_XOR:
      return apply([u](T x, T y) { return static_cast<T>(u(x) ^ u(y)); });
    case program::v1::SHIFT_LEFT:
      return apply([](T x, T y) { return Shift(x, y, true); });
    case program::v1::SHIFT_RIGHT:
      return apply([](T x, T y) { return Shift(x, y, false); });
    case program::v1::MINIMUM:
      return apply([](T x, T y) { return std::min(x, y); });
    default:
      program::Unhandled("binary operator of integers", op);
  }
}

// --- Block functions ---

// A block function of one operand: `row(in, out, n)`.
template <class T, class R, class F>
BlockFunction OfOne(const F& row) {
  return [row](const BlockOperand* in, void* result, size_t n) {
    auto* out = static_cast<R*>(result);
    row(in[0].As<T>(), out, in[0].moves ? n : 1);
    if (!in[0].moves) std::fill_n(out, n, out[0]);
  };
}

// A block function of two operands: `row(a, a moves, b, b moves, out, n)`.
template <class T, class R, class F>
BlockFunction OfTwo(const F& row) {
  return [row](const BlockOperand* in, void* result, size_t n) {
    row(in[0].As<T>(), in[0].moves, in[1].As<T>(), in[1].moves, static_cast<R*>(result), n);
  };
}

// Calls `f` with an element of an integer type.
template <class F>
absl::StatusOr<BlockFunction> WithInteger(program::v1::DataType type, const F& f) {
  return WithElement(type, [&](auto element) -> absl::StatusOr<BlockFunction> {
    if constexpr (std::is_integral_v<decltype(element)>) {
      return f(element);
    } else {
      return absl::InternalError("not an integer");
    }
  });
}

absl::StatusOr<BlockFunction> FindUnary(program::v1::UnaryOperator op, program::v1::DataType type) {
  if (program::IsFloat(type)) {
    return OfOne<float, float>(
        [op](const float* in, float* out, size_t n) { UnaryFloats(op, in, out, n); });
  }
  if (type == program::v1::BOOL) {
    return OfOne<uint8_t, uint8_t>([](const uint8_t* in, uint8_t* out, size_t n) {
      for (size_t i = 0; i < n; ++i) out[i] = in[i] == 0;
    });
  }
  return WithInteger(type, [op](auto element) {
    using T = decltype(element);
    return OfOne<T, T>([op](const T* in, T* out, size_t n) { UnaryIntegers(op, in, out, n); });
  });
}

template <class T>
BlockFunction Comparison(program::v1::BinaryOperator op) {
  return OfTwo<T, uint8_t>([op](auto... row) { CompareRow<T>(op, row...); });
}

absl::StatusOr<BlockFunction> FindBinary(program::v1::BinaryOperator op, program::v1::DataType type,
                                         bool to_bool) {
  if (program::IsFloat(type)) {
    if (to_bool) return Comparison<float>(op);
    return OfTwo<float, float>(FindFloatFunction(op));
  }
  if (type == program::v1::BOOL) return Comparison<uint8_t>(op);
  return WithInteger(type, [&](auto element) {
    using T = decltype(element);
    if (to_bool) return Comparison<T>(op);
    return OfTwo<T, T>([op](auto... row) { IntegerRow<T>(op, row...); });
  });
}

// Elements are moved as bits. Both are read before one is chosen: loads that depend on the
// condition are slow.
template <class Bits>
VPOD_SIMD void SelectRow(const BlockOperand* in, void* result, size_t n) {
  const auto* condition = in[0].As<uint8_t>();
  const auto *a = in[1].As<Bits>(), *b = in[2].As<Bits>();
  auto* out = static_cast<Bits*>(result);
  if (!in[0].moves) {
    const BlockOperand& chosen = in[*condition != 0 ? 1 : 2];
    if (!chosen.moves) {
      std::fill_n(out, n, *chosen.As<Bits>());
    } else if (out != chosen.data) {
      std::copy_n(chosen.As<Bits>(), n, out);
    }
    return;
  }
  const auto select = [&](auto a_at, auto b_at) {
    for (size_t i = 0; i < n; ++i) {
      const Bits x = a_at(i), y = b_at(i);
      out[i] = condition[i] != 0 ? x : y;
    }
  };
  const auto a_moves = [a](size_t i) { return a[i]; }, b_moves = [b](size_t i) { return b[i]; };
  const auto a_rests = [x = *a](size_t) { return x; };
  const auto b_rests = [y = *b](size_t) { return y; };
  if (in[1].moves) return in[2].moves ? select(a_moves, b_moves) : select(a_moves, b_rests);
  return in[2].moves ? select(a_rests, b_moves) : select(a_rests, b_rests);
}

BlockFunction FindSelect(program::v1::DataType type) {
  switch (type == program::v1::FLOAT16 ? sizeof(float) : program::SizeOf(type)) {
    case 1:
      return SelectRow<uint8_t>;
    case 2:
      return SelectRow<uint16_t>;
    default:
      return SelectRow<uint32_t>;
  }
}

// The type that stands for a tensor's in blocks.
template <class T>
using InBlock = std::conditional_t<std::is_same_v<T, _Float16>, float, T>;

template <class From, class To>
VPOD_SIMD void CastRow(const From* in, To* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = Convert<To>(in[i]);
}

template <class From>
VPOD_SIMD void NonZeroRow(const From* in, uint8_t* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = in[i] != From{};
}

BlockFunction FindCast(program::v1::DataType from, program::v1::DataType to) {
  return WithElement(from, [&](auto source) {
    using From = InBlock<decltype(source)>;
    if (to == program::v1::BOOL) return OfOne<From, uint8_t>(NonZeroRow<From>);
    return WithElement(to, [](auto target) {
      using To = InBlock<decltype(target)>;
      return OfOne<From, To>(CastRow<From, To>);
    });
  });
}

}  // namespace

absl::StatusOr<BlockFunction> FindBlockFunction(const Instruction& instruction,
                                                absl::Span<const program::v1::DataType> inputs,
                                                program::v1::DataType output) {
  switch (instruction.attributes_case()) {
    case Instruction::kUnary:
      return FindUnary(instruction.unary().operator_(), inputs[0]);
    case Instruction::kBinary:
      return FindBinary(instruction.binary().operator_(), inputs[0], output == program::v1::BOOL);
    case Instruction::kSelect:
      return FindSelect(output);
    case Instruction::kCast:
      return FindCast(inputs[0], output);
    default:
      return absl::InternalError("not an element-by-element op");
  }
}

}  // namespace vpod::engine
