#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

using program::Dims;

// --- Unary ---

VPOD_SIMD void ReluFloats(const float* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = in[i] > 0 ? in[i] : 0.0f;
}

void UnaryFloats(program::v1::UnaryOperator op, const float* in, float* out, size_t n) {
  const auto apply = [&](auto f) {
    for (size_t i = 0; i < n; ++i) out[i] = f(in[i]);
  };
  switch (op) {
    case program::v1::NEGATE:
      return apply([](float x) { return -x; });
    case program::v1::ABSOLUTE:
      return apply([](float x) { return std::fabs(x); });
    case program::v1::EXPONENT:
      return apply([](float x) { return std::exp(x); });
    case program::v1::LOGARITHM:
      return apply([](float x) { return std::log(x); });
    case program::v1::SQUARE_ROOT:
      return apply([](float x) { return std::sqrt(x); });
    case program::v1::SQUARE:
      return apply([](float x) { return x * x; });
    case program::v1::TANH:
      return apply([](float x) { return std::tanh(x); });
    case program::v1::SIGMOID:
      return apply([](float x) { return 1.0f / (1.0f + std::exp(-x)); });
    case program::v1::RELU:
      return ReluFloats(in, out, n);
    case program::v1::RECIPROCAL:
      return apply([](float x) { return 1.0f / x; });
    default:
      return;
  }
}

void UnaryInts(program::v1::UnaryOperator op, const int32_t* in, int32_t* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const auto bits =
        static_cast<uint32_t>(in[i]);  // unsigned arithmetic wraps as the device's does
    switch (op) {
      case program::v1::NEGATE:
        out[i] = static_cast<int32_t>(0u - bits);
        break;
      case program::v1::ABSOLUTE:
        out[i] = static_cast<int32_t>(in[i] < 0 ? 0u - bits : bits);
        break;
      case program::v1::SQUARE:
        out[i] = static_cast<int32_t>(bits * bits);
        break;
      default:
        out[i] = std::max(in[i], 0);  // RELU
    }
  }
}

// --- Binary ---

// How an operand's index moves along the axes of the result: 0 where it is broadcast.
Dims BroadcastStrides(const Dims& operand, const Dims& result) {
  Dims strides(result.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < operand.size(); ++i) {
    const size_t from_end = operand.size() - 1 - i;
    if (operand[from_end] != 1) strides[result.size() - 1 - i] = stride;
    stride *= operand[from_end];
  }
  return strides;
}

// A broadcast reduced to rows: the innermost run of axes over which each operand is either dense or
// constant.
struct RowPlan {
  size_t rows = 1;
  size_t length = 1;
  bool a_moves = true;  // along the row
  bool b_moves = true;
  Dims outer_dims, a_outer, b_outer;
};

RowPlan PlanRows(const Dims& a, const Dims& b, const Dims& result) {
  const Dims a_strides = BroadcastStrides(a, result), b_strides = BroadcastStrides(b, result);
  RowPlan plan;
  size_t axis = result.size();
  bool first = true;
  while (axis > 0) {
    const int64_t dim = result[axis - 1];
    if (dim > 1) {
      const bool a_moves = a_strides[axis - 1] != 0, b_moves = b_strides[axis - 1] != 0;
      if (first) {
        plan.a_moves = a_moves;
        plan.b_moves = b_moves;
        first = false;
      } else if (a_moves != plan.a_moves || b_moves != plan.b_moves) {
        break;
      }
      plan.length *= static_cast<size_t>(dim);
    }
    --axis;
  }
  for (size_t i = 0; i < axis; ++i) {
    plan.outer_dims.push_back(result[i]);
    plan.a_outer.push_back(a_strides[i]);
    plan.b_outer.push_back(b_strides[i]);
    plan.rows *= static_cast<size_t>(result[i]);
  }
  return plan;
}

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

using FloatRow = void (*)(const float*, bool, const float*, bool, float*, size_t);

#define VPOD_FLOAT_ROW(name, expression)                                                        \
  VPOD_SIMD void name(const float* a, bool am, const float* b, bool bm, float* out, size_t n) { \
    Row(a, am, b, bm, out, n, [](float x, float y) { return expression; });                     \
  }
VPOD_FLOAT_ROW(AddRow, x + y)
VPOD_FLOAT_ROW(SubtractRow, x - y)
VPOD_FLOAT_ROW(MultiplyRow, x* y)
VPOD_FLOAT_ROW(DivideRow, x / y)
VPOD_FLOAT_ROW(MaximumRow, x > y ? x : y)
VPOD_FLOAT_ROW(MinimumRow, x < y ? x : y)
VPOD_FLOAT_ROW(ReluGradientRow, x > 0 ? y : 0.0f)
VPOD_FLOAT_ROW(TanhGradientRow, (1 - x * x) * y)
VPOD_FLOAT_ROW(SigmoidGradientRow, x*(1 - x) * y)
#undef VPOD_FLOAT_ROW

FloatRow FindFloatRow(program::v1::BinaryOperator op) {
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
    case program::v1::TANH_GRADIENT:
      return TanhGradientRow;
    default:
      return SigmoidGradientRow;
  }
}

template <class T>
void CompareRow(program::v1::BinaryOperator op, const T* a, bool am, const T* b, bool bm,
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
    default:
      return apply([](T x, T y) -> uint8_t { return x != 0 || y != 0; });
  }
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
    default:
      return apply([](T x, T y) { return std::min(x, y); });
  }
}

template <class T, class R, class RowFunction>
void ForRows(const RowPlan& plan, const T* a, const T* b, R* out, const RowFunction& row) {
  std::array<int64_t, program::kMaxRank> index{};
  for (size_t r = 0; r < plan.rows; ++r) {
    int64_t a_at = 0, b_at = 0;
    for (size_t i = 0; i < plan.outer_dims.size(); ++i) {
      a_at += index[i] * plan.a_outer[i];
      b_at += index[i] * plan.b_outer[i];
    }
    row(a + a_at, plan.a_moves, b + b_at, plan.b_moves, out + r * plan.length, plan.length);
    for (size_t i = plan.outer_dims.size(); i-- > 0;) {
      if (++index[i] < plan.outer_dims[i]) break;
      index[i] = 0;
    }
  }
}

absl::StatusOr<Kernel> PrepareUnary(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const program::v1::UnaryOperator function = instruction.unary().operator_();
  return [=](std::byte* arena) {
    if (input.type.type == program::v1::BOOL) {
      const uint8_t* in = input.As<uint8_t>(arena);
      uint8_t* out = output.As<uint8_t>(arena);
      for (size_t i = 0; i < input.elements(); ++i) out[i] = in[i] == 0;
    } else if (input.type.type == program::v1::INT32) {
      UnaryInts(function, input.As<int32_t>(arena), output.As<int32_t>(arena), input.elements());
    } else {
      const float* in = ReadFloats(input, arena, 0);
      float* out = WriteFloats(output, arena, 1);
      UnaryFloats(function, in, out, input.elements());
      StoreFloats(output, arena, out);
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareBinary(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand a = Resolve(ipu, instruction.inputs(0)), b = Resolve(ipu, instruction.inputs(1)),
                output = Resolve(ipu, instruction.outputs(0));
  const program::v1::BinaryOperator function = instruction.binary().operator_();
  const RowPlan plan = PlanRows(a.type.dims, b.type.dims, output.type.dims);
  const bool to_bool = output.type.type == program::v1::BOOL;
  switch (a.type.type) {
    case program::v1::BOOL:
      return [=](std::byte* arena) {
        ForRows(plan, a.As<uint8_t>(arena), b.As<uint8_t>(arena), output.As<uint8_t>(arena),
                [&](auto... row) { CompareRow<uint8_t>(function, row...); });
        return absl::OkStatus();
      };
    case program::v1::INT32:
    case program::v1::UINT32: {
      const auto prepare = [=](auto element) -> Kernel {
        using T = decltype(element);
        return [=](std::byte* arena) {
          if (to_bool) {
            ForRows(plan, a.As<T>(arena), b.As<T>(arena), output.As<uint8_t>(arena),
                    [&](auto... row) { CompareRow<T>(function, row...); });
          } else {
            ForRows(plan, a.As<T>(arena), b.As<T>(arena), output.As<T>(arena),
                    [&](auto... row) { IntegerRow<T>(function, row...); });
          }
          return absl::OkStatus();
        };
      };
      return a.type.type == program::v1::INT32 ? prepare(int32_t{}) : prepare(uint32_t{});
    }
    default:
      break;
  }
  const FloatRow float_row = FindFloatRow(function);
  return [=](std::byte* arena) {
    const float* left = ReadFloats(a, arena, 0);
    const float* right = ReadFloats(b, arena, 1);
    if (to_bool) {
      ForRows(plan, left, right, output.As<uint8_t>(arena),
              [&](auto... row) { CompareRow<float>(function, row...); });
    } else {
      float* out = WriteFloats(output, arena, 2);
      ForRows(plan, left, right, out, float_row);
      StoreFloats(output, arena, out);
    }
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<KernelDef> ElementwiseKernels() {
  return {{Instruction::kUnary, PrepareUnary}, {Instruction::kBinary, PrepareBinary}};
}

}  // namespace vpod::engine
