#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <type_traits>

#include "device/base/simd.h"
#include "device/engine/kernels/loop.h"

namespace vpod::engine {
namespace {

// --- Unary ---

VPOD_SIMD void ReluFloats(const float* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = in[i] <= 0 ? 0.0f : in[i];
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
    default:
      return apply([](uint32_t bits, T x) { return x < 0 ? 0u : bits; });  // RELU
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
VPOD_FLOAT_ROW(ReluGradientRow, x <= 0 ? 0.0f : y)
VPOD_FLOAT_ROW(TanhGradientRow, (1 - x * x) * y)
VPOD_FLOAT_ROW(SigmoidGradientRow, x*(1 - x) * y)
#undef VPOD_FLOAT_ROW

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

// Operands and result of an element-by-element op; the result is operand 0 of the loop.
struct Elementwise {
  Operand output;
  std::vector<Operand> inputs;
  Loop loop;

  Elementwise(const program::v1::Ipu& ipu, const Instruction& instruction)
      : output(Resolve(ipu, instruction.outputs(0))) {
    const program::Dims& dims = output.type.dims;
    std::vector<program::Dims> strides = {BroadcastStrides(output, dims)};
    for (uint32_t input : instruction.inputs()) {
      inputs.push_back(Resolve(ipu, input));
      strides.push_back(BroadcastStrides(inputs.back(), dims));
    }
    loop = PlanLoop(dims, std::move(strides));
  }

  bool to_bool() const { return output.type.type == program::v1::BOOL; }

  // `run(at, begin, end)` computes a range of the loop's elements.
  template <class Run>
  static Kernel Make(std::shared_ptr<const Elementwise> op, Run run) {
    const Chunking elements = op->loop.chunking();
    return OnePhase(elements.chunks(), 0, [=](const Workspace& at, size_t chunk) {
      run(*op, at, elements.begin(chunk), elements.end(chunk));
      return absl::OkStatus();
    });
  }
};

void RunUnaryFloats(program::v1::UnaryOperator function, const Elementwise& op, const Workspace& at,
                    size_t begin, size_t end) {
  const auto& steps = op.loop.steps;
  FloatRow in(op.inputs[0], at), out(op.output, at);
  op.loop.ForBlocks(begin, end, [&](const auto& p, size_t n) {
    UnaryFloats(function, in.Read(p[1], steps[1], n), out.Write(p[0], steps[0]), n);
    out.Store(p[0], steps[0], n);
  });
}

// A short row that some operands repeat, written out so often that it covers a block from wherever
// in the row that begins. Biases and the parameters of normalisations are such rows.
constexpr size_t kShortRow = 256;
class RepeatedRow {
 public:
  RepeatedRow(const float* row, bool moves, size_t length) : length_(length) {
    for (size_t i = 0; i < std::size(values_); ++i) values_[i] = row[moves ? i % length : 0];
  }
  const float* From(size_t element) const { return values_ + element % length_; }

 private:
  const size_t length_;
  float values_[kElementsOfABlock + kShortRow];
};

// Whether each operand is dense or repeats one short row.
bool HasShortRows(const Loop& loop) {
  if (loop.dims.size() != 1 || loop.length > kShortRow || loop.steps[0] != 1) return false;
  for (size_t o = 0; o < loop.steps.size(); ++o) {
    const int64_t stride = loop.strides[o][0];
    const bool dense = loop.steps[o] == 1 && stride == static_cast<int64_t>(loop.length);
    if (!dense && (o == 0 || stride != 0 || loop.steps[o] > 1 || loop.steps[o] < 0)) return false;
  }
  return true;
}

void RunBinaryFloatsInShortRows(FloatFunction function, const Elementwise& op, const Workspace& at,
                                size_t begin, size_t end) {
  const Loop& loop = op.loop;
  FloatRow in[] = {{op.inputs[0], at}, {op.inputs[1], at}}, out(op.output, at);
  std::optional<RepeatedRow> repeated[2];
  for (size_t i = 0; i < 2; ++i) {
    if (loop.strides[i + 1][0] != 0) continue;
    const bool moves = loop.steps[i + 1] != 0;
    repeated[i].emplace(in[i].Read(0, loop.steps[i + 1], loop.length), moves, loop.length);
  }
  for (size_t n = 0; begin < end; begin += n) {
    n = std::min(kElementsOfABlock, end - begin);
    const auto position = static_cast<int64_t>(begin);
    const auto read = [&](size_t i) {
      return repeated[i] ? repeated[i]->From(begin) : in[i].Read(position, 1, n);
    };
    const float* a = read(0);
    function(a, true, read(1), true, out.Write(position, 1), n);
    out.Store(position, 1, n);
  }
}

void RunBinaryFloats(FloatFunction function, const Elementwise& op, const Workspace& at,
                     size_t begin, size_t end) {
  if (HasShortRows(op.loop)) return RunBinaryFloatsInShortRows(function, op, at, begin, end);
  const auto& steps = op.loop.steps;
  FloatRow a(op.inputs[0], at), b(op.inputs[1], at), out(op.output, at);
  op.loop.ForBlocks(begin, end, [&](const auto& p, size_t n) {
    const float* x = a.Read(p[1], steps[1], n);
    const float* y = b.Read(p[2], steps[2], n);
    function(x, steps[1] != 0, y, steps[2] != 0, out.Write(p[0], steps[0]), n);
    out.Store(p[0], steps[0], n);
  });
}

void RunComparedFloats(program::v1::BinaryOperator function, const Elementwise& op,
                       const Workspace& at, size_t begin, size_t end) {
  const auto& steps = op.loop.steps;
  FloatRow a(op.inputs[0], at), b(op.inputs[1], at);
  uint8_t result[kElementsOfABlock];
  op.loop.ForBlocks(begin, end, [&](const auto& p, size_t n) {
    const float* x = a.Read(p[1], steps[1], n);
    const float* y = b.Read(p[2], steps[2], n);
    CompareRow<float>(function, x, steps[1] != 0, y, steps[2] != 0, result, n);
    Scatter(result, op.output.As<uint8_t>(at) + p[0], steps[0], n);
  });
}

// Rows of integers: `function(a, a moves, b, b moves, result, n)`.
template <class T, class R, class Function>
void RunIntegers(const Function& function, const Elementwise& op, const Workspace& at, size_t begin,
                 size_t end) {
  const auto& steps = op.loop.steps;
  T left[kElementsOfABlock], right[kElementsOfABlock];
  R result[kElementsOfABlock];
  const bool unary = op.inputs.size() == 1;
  op.loop.ForBlocks(begin, end, [&](const auto& p, size_t n) {
    const T* x = Gather(op.inputs[0].template As<T>(at) + p[1], steps[1], n, left);
    const T* y = unary ? x : Gather(op.inputs[1].template As<T>(at) + p[2], steps[2], n, right);
    function(x, steps[1] != 0, y, unary || steps[2] != 0, result, n);
    Scatter(result, op.output.template As<R>(at) + p[0], steps[0], n);
  });
}

absl::StatusOr<Kernel> PrepareUnary(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const auto op = std::make_shared<const Elementwise>(ipu, instruction);
  const program::v1::UnaryOperator function = instruction.unary().operator_();
  const auto type = op->output.type.type;
  if (program::IsFloat(type)) {
    return Elementwise::Make(op, [=](auto&&... range) { RunUnaryFloats(function, range...); });
  }
  if (type == program::v1::BOOL) {
    const auto negate = [](const uint8_t* x, bool, const uint8_t*, bool, uint8_t* y, size_t n) {
      for (size_t i = 0; i < n; ++i) y[i] = x[i] == 0;
    };
    return Elementwise::Make(
        op, [=](auto&&... range) { RunIntegers<uint8_t, uint8_t>(negate, range...); });
  }
  return WithElement(type, [&](auto element) -> absl::StatusOr<Kernel> {
    using T = decltype(element);
    if constexpr (!std::is_integral_v<T>) {
      return absl::InternalError("not an integer");
    } else {
      const auto integers = [=](const T* x, bool, const T*, bool, T* y, size_t n) {
        UnaryIntegers(function, x, y, n);
      };
      return Elementwise::Make(op, [=](auto&&... range) { RunIntegers<T, T>(integers, range...); });
    }
  });
}

template <class T>
Kernel PrepareBinaryIntegers(std::shared_ptr<const Elementwise> op,
                             program::v1::BinaryOperator function) {
  if (op->to_bool()) {
    const auto compare = [=](auto... row) { CompareRow<T>(function, row...); };
    return Elementwise::Make(op,
                             [=](auto&&... range) { RunIntegers<T, uint8_t>(compare, range...); });
  }
  const auto compute = [=](auto... row) { IntegerRow<T>(function, row...); };
  return Elementwise::Make(op, [=](auto&&... range) { RunIntegers<T, T>(compute, range...); });
}

absl::StatusOr<Kernel> PrepareBinary(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const auto op = std::make_shared<const Elementwise>(ipu, instruction);
  const program::v1::BinaryOperator function = instruction.binary().operator_();
  const auto type = op->inputs[0].type.type;
  if (type == program::v1::BOOL) {
    const auto compare = [=](auto... row) { CompareRow<uint8_t>(function, row...); };
    return Elementwise::Make(
        op, [=](auto&&... range) { RunIntegers<uint8_t, uint8_t>(compare, range...); });
  }
  if (program::IsInteger(type)) {
    return WithElement(type, [&](auto element) -> absl::StatusOr<Kernel> {
      using T = decltype(element);
      if constexpr (std::is_integral_v<T>) {
        return PrepareBinaryIntegers<T>(op, function);
      } else {
        return absl::InternalError("not an integer");
      }
    });
  }
  if (op->to_bool()) {
    return Elementwise::Make(op, [=](auto&&... range) { RunComparedFloats(function, range...); });
  }
  const FloatFunction row = FindFloatFunction(function);
  return Elementwise::Make(op, [=](auto&&... range) { RunBinaryFloats(row, range...); });
}

template <class T>
void RunSelect(const Elementwise& op, const Workspace& at, size_t begin, size_t end) {
  const auto& steps = op.loop.steps;
  const auto* condition = op.inputs[0].As<uint8_t>(at);
  const T *a = op.inputs[1].As<T>(at), *b = op.inputs[2].As<T>(at);
  T* out = op.output.As<T>(at);
  op.loop.ForBlocks(begin, end, [&](const auto& p, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const auto k = static_cast<int64_t>(i);
      out[p[0] + k * steps[0]] =
          condition[p[1] + k * steps[1]] != 0 ? a[p[2] + k * steps[2]] : b[p[3] + k * steps[3]];
    }
  });
}

absl::StatusOr<Kernel> PrepareSelect(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const auto op = std::make_shared<const Elementwise>(ipu, instruction);
  return WithElement(op->output.type.type, [&](auto element) -> absl::StatusOr<Kernel> {
    using T = decltype(element);
    return Elementwise::Make(op, [](auto&&... range) { RunSelect<T>(range...); });
  });
}

}  // namespace

std::vector<KernelDef> ElementwiseKernels() {
  return {{Instruction::kUnary, PrepareUnary},
          {Instruction::kBinary, PrepareBinary},
          {Instruction::kSelect, PrepareSelect}};
}

}  // namespace vpod::engine
