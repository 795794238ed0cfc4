#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// A gradient of float16 is computed in float32 and rounded once: squares and quotients on the way
// to it would be out of range or inexact.
Tensor Wide(Graph& graph, Tensor x) { return graph.Cast(x, v1::FLOAT32); }

// The output of a function in float32. A result that was rounded to float16 is computed again.
Tensor WideOutput(Graph& graph, const v1::Instruction& forward) {
  const Tensor y{forward.outputs(0)};
  if (graph.TypeOf(y).type == v1::FLOAT32) return y;
  const Tensor a = Wide(graph, {forward.inputs(0)});
  if (forward.has_unary()) return graph.Unary(forward.unary().operator_(), a);
  return graph.Binary(forward.binary().operator_(), a, Wide(graph, {forward.inputs(1)}));
}

// Comparisons, logic and operations of integers do not give floats, so that nothing flows back to
// them.
void NoGradient(Graph& graph, absl::string_view name) {
  graph.Fail(absl::InvalidArgumentError(
      absl::StrCat(name, " has no gradient; operations that give floats have one")));
}

// dy times the derivative at x, all in float32; invalid for another function.
Tensor WideUnaryGradient(Graph& graph, const v1::Instruction& forward, Tensor x, Tensor dy) {
  const auto number = [&](double value) { return graph.Constant({v1::FLOAT32, {}}, value); };
  const auto output = [&] { return WideOutput(graph, forward); };
  const auto unary = [&](v1::UnaryOperator function, Tensor a) { return graph.Unary(function, a); };
  const auto times = [&](Tensor slope) { return graph.Multiply(dy, slope); };
  const auto square_plus_one = [&] { return graph.Add(unary(v1::SQUARE, x), number(1)); };
  // (1 - x) * (1 + x), which does not cancel where x is near 1 or -1.
  const auto one_minus_square = [&] {
    return graph.Multiply(graph.Binary(v1::SUBTRACT, number(1), x), graph.Add(x, number(1)));
  };
  switch (forward.unary().operator_()) {
    case v1::LOGARITHM:
      return graph.Binary(v1::DIVIDE, dy, x);
    case v1::SQUARE_ROOT:
      return graph.Binary(v1::DIVIDE, graph.Multiply(dy, number(0.5)), output());
    case v1::SQUARE:
      return graph.Multiply(times(x), number(2));
    case v1::RECIPROCAL:
      return unary(v1::NEGATE, times(unary(v1::SQUARE, output())));
    case v1::RECIPROCAL_ROOT: {
      // -y^3 / 2
      const Tensor y = output();
      return graph.Multiply(times(graph.Multiply(y, number(-0.5))), unary(v1::SQUARE, y));
    }
    case v1::ERF_INV: {
      // The error function's derivative is 2 / sqrt(pi) * exp(-y^2).
      const Tensor exponential = unary(v1::EXPONENT, unary(v1::SQUARE, output()));
      return times(graph.Multiply(exponential, number(std::sqrt(std::numbers::pi) / 2)));
    }
    case v1::ERF: {
      const Tensor exponential = unary(v1::EXPONENT, unary(v1::NEGATE, unary(v1::SQUARE, x)));
      return times(graph.Multiply(exponential, number(2 / std::sqrt(std::numbers::pi))));
    }
    case v1::SIN:
      return times(unary(v1::COS, x));
    case v1::COS:
      return times(unary(v1::NEGATE, unary(v1::SIN, x)));
    case v1::TAN:
      return times(unary(v1::RECIPROCAL, unary(v1::SQUARE, unary(v1::COS, x))));
    case v1::ASIN:
      return times(unary(v1::RECIPROCAL_ROOT, one_minus_square()));
    case v1::ACOS:
      return times(unary(v1::NEGATE, unary(v1::RECIPROCAL_ROOT, one_minus_square())));
    case v1::ATAN:
      return times(unary(v1::RECIPROCAL, square_plus_one()));
    case v1::SINH:
      return times(unary(v1::COSH, x));
    case v1::COSH:
      return times(unary(v1::SINH, x));
    case v1::ASINH:
      return times(unary(v1::RECIPROCAL_ROOT, square_plus_one()));
    case v1::ACOSH:
      // The negative zero of x = -1 gives infinity, as it does in PyTorch.
      return times(
          unary(v1::RECIPROCAL_ROOT, graph.Binary(v1::SUBTRACT, number(0), one_minus_square())));
    case v1::ATANH:
      return times(unary(v1::RECIPROCAL, one_minus_square()));
    case v1::EXPM1:
      return times(unary(v1::EXPONENT, x));
    case v1::LOG1P:
      return times(unary(v1::RECIPROCAL, graph.Add(x, number(1))));
    default:
      return {};
  }
}

void UnaryGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, y{forward.outputs(0)};
  const Tensor dy = gradients.Get(y.id);
  const v1::UnaryOperator function = forward.unary().operator_();
  switch (function) {
    // One operation, which rounds once.
    case v1::NEGATE:
      return gradients.Add(x.id, graph.Unary(v1::NEGATE, dy));
    case v1::ABSOLUTE: {
      // dy where x > 0, -dy where x < 0, 0 at 0.
      const Tensor minus_x = graph.Unary(v1::NEGATE, x);
      return gradients.Add(x.id, graph.Binary(v1::SUBTRACT, graph.Binary(v1::RELU_GRADIENT, x, dy),
                                              graph.Binary(v1::RELU_GRADIENT, minus_x, dy)));
    }
    case v1::EXPONENT:
      return gradients.Add(x.id, graph.Multiply(dy, y));
    case v1::TANH:
      return gradients.Add(x.id, graph.Binary(v1::TANH_GRADIENT, y, dy));
    case v1::SIGMOID:
      return gradients.Add(x.id, graph.Binary(v1::SIGMOID_GRADIENT, y, dy));
    case v1::RELU:
      return gradients.Add(x.id, graph.Binary(v1::RELU_GRADIENT, y, dy));
    case v1::RELU6:
      return gradients.Add(x.id, graph.Binary(v1::RELU6_GRADIENT, y, dy));
    case v1::SILU:
      return gradients.Add(x.id, graph.Binary(v1::SILU_GRADIENT, x, dy));
    // Constant wherever there is a derivative.
    case v1::FLOOR:
    case v1::CEIL:
    case v1::ROUND:
    case v1::TRUNCATE:
    case v1::SIGN:
      return;
    default:
      break;
  }
  const Tensor dx = WideUnaryGradient(graph, forward, Wide(graph, x), Wide(graph, dy));
  if (!dx.valid()) return NoGradient(graph, v1::UnaryOperator_Name(function));
  gradients.Add(x.id, graph.Cast(dx, graph.TypeOf(x).type));
}

void BinaryGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::BinaryOperator function = forward.binary().operator_();
  const Tensor dy_of_y = gradients.Get(forward.outputs(0));
  // These have no more than one rounding in the type of the operands.
  const bool is_single = function == v1::ADD || function == v1::SUBTRACT ||
                         function == v1::MULTIPLY || function == v1::RELU_GRADIENT ||
                         function == v1::RELU6_GRADIENT || function == v1::MAXIMUM ||
                         function == v1::MINIMUM;
  const auto computed = [&](Tensor x) { return is_single ? x : Wide(graph, x); };
  const Tensor a = computed({forward.inputs(0)}), b = computed({forward.inputs(1)}),
               dy = computed(dy_of_y);
  const auto output = [&] { return WideOutput(graph, forward); };
  const auto scalar = [&](double value) {
    return graph.Constant({graph.TypeOf(dy).type, {}}, value);
  };
  const auto add = [&](int input, Tensor gradient) {
    const TensorType type = graph.TypeOf({forward.inputs(input)});
    const Tensor sum = graph.ReduceToType(gradient, {graph.TypeOf(gradient).type, type.dims});
    gradients.Add(forward.inputs(input), graph.Cast(sum, type.type));
  };
  switch (function) {
    case v1::ADD:
      add(0, dy);
      add(1, dy);
      break;
    case v1::SUBTRACT:
      add(0, dy);
      add(1, graph.Unary(v1::NEGATE, dy));
      break;
    case v1::MULTIPLY:
      for (int i : {0, 1}) {
        const Tensor other = i == 0 ? b : a;
        const bool is_sum = graph.TypeOf({forward.inputs(i)}).dims != graph.TypeOf(dy).dims;
        add(i, is_sum ? graph.Multiply(Wide(graph, dy), Wide(graph, other))
                      : graph.Multiply(dy, other));
      }
      break;
    case v1::DIVIDE: {
      const Tensor quotient = graph.Binary(v1::DIVIDE, dy, b);
      add(0, quotient);
      add(1, graph.Unary(v1::NEGATE, graph.Multiply(quotient, output())));
      break;
    }
    case v1::MAXIMUM:
    case v1::MINIMUM: {
      // The chosen operand takes the gradient; equals take half of it each.
      const auto wins = function == v1::MAXIMUM ? v1::GREATER : v1::LESS;
      const Tensor zero = scalar(0), half = graph.Multiply(dy, scalar(0.5));
      const Tensor shared = graph.Select(graph.Binary(v1::EQUAL, a, b), half, zero);
      add(0, graph.Select(graph.Binary(wins, a, b), dy, shared));
      add(1, graph.Select(graph.Binary(wins, b, a), dy, shared));
      break;
    }
    case v1::RELU_GRADIENT:
    case v1::RELU6_GRADIENT:
      // Constant in a but for the kinks.
      add(1, graph.Binary(function, a, dy));
      break;
    case v1::TANH_GRADIENT: {
      // y = (1 - a²)·b: dy/da = -2·a·b
      add(0, graph.Multiply(graph.Multiply(scalar(-2), graph.Multiply(a, b)), dy));
      add(1, graph.Binary(v1::TANH_GRADIENT, a, dy));
      break;
    }
    case v1::SIGMOID_GRADIENT: {
      // y = a·(1 - a)·b: dy/da = (1 - 2·a)·b
      const Tensor slope = graph.Binary(v1::SUBTRACT, graph.Binary(v1::SUBTRACT, scalar(1), a), a);
      add(0, graph.Multiply(graph.Multiply(slope, b), dy));
      add(1, graph.Binary(v1::SIGMOID_GRADIENT, a, dy));
      break;
    }
    case v1::SILU_GRADIENT: {
      // y = s·(1 + a·(1 - s))·b: dy/da = s·(1 - s)·(2 + a·(1 - 2·s))·b
      const Tensor s = graph.Unary(v1::SIGMOID, a);
      const Tensor rest = graph.Binary(v1::SUBTRACT, scalar(1), s);
      const Tensor bend = graph.Multiply(a, graph.Binary(v1::SUBTRACT, rest, s));
      const Tensor slope = graph.Multiply(graph.Multiply(s, rest), graph.Add(scalar(2), bend));
      add(0, graph.Multiply(graph.Multiply(slope, b), dy));
      add(1, graph.Binary(v1::SILU_GRADIENT, a, dy));
      break;
    }
    case v1::POWER: {
      // b * a^(b-1), and 0 where b is 0; y * log a, and 0 where a is 0 and b is not below it.
      const Tensor zero = scalar(0);
      const Tensor lower = graph.Binary(v1::POWER, a, graph.Binary(v1::SUBTRACT, b, scalar(1)));
      add(0, graph.Select(graph.Binary(v1::EQUAL, b, zero), zero,
                          graph.Multiply(dy, graph.Multiply(b, lower))));
      const Tensor vanishes = graph.Binary(v1::LOGICAL_AND, graph.Binary(v1::EQUAL, a, zero),
                                           graph.Binary(v1::GREATER_EQUAL, b, zero));
      const Tensor log_a = graph.Unary(v1::LOGARITHM, a);
      add(1, graph.Select(vanishes, zero, graph.Multiply(dy, graph.Multiply(output(), log_a))));
      break;
    }
    case v1::ATAN2: {
      // b / (a^2 + b^2) and -a / (a^2 + b^2)
      const Tensor squares = graph.Add(graph.Unary(v1::SQUARE, a), graph.Unary(v1::SQUARE, b));
      const Tensor part = graph.Binary(v1::DIVIDE, dy, squares);
      add(0, graph.Multiply(part, b));
      add(1, graph.Unary(v1::NEGATE, graph.Multiply(part, a)));
      break;
    }
    case v1::REMAINDER:
    case v1::FMOD: {
      // a - b * n, where the integer n is constant. The quotient itself may be rounded across it.
      const Tensor whole = graph.Binary(v1::SUBTRACT, a, output());
      const Tensor n = graph.Unary(v1::ROUND, graph.Binary(v1::DIVIDE, whole, b));
      add(0, dy);
      add(1, graph.Unary(v1::NEGATE, graph.Multiply(dy, n)));
      break;
    }
    default:
      NoGradient(graph, v1::BinaryOperator_Name(function));
  }
}

void SelectGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor condition{forward.inputs(0)}, a{forward.inputs(1)}, b{forward.inputs(2)};
  const Tensor dy = gradients.Get(forward.outputs(0));
  const Tensor zero = graph.Constant({graph.TypeOf(dy).type, {}}, 0);
  gradients.Add(a.id, graph.ReduceToType(graph.Select(condition, dy, zero), graph.TypeOf(a)));
  gradients.Add(b.id, graph.ReduceToType(graph.Select(condition, zero, dy), graph.TypeOf(b)));
}

void CastGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)};
  const v1::DataType type = graph.TypeOf(x).type;
  if (!program::IsFloat(type)) return;
  gradients.Add(x.id, graph.Cast(gradients.Get(forward.outputs(0)), type));
}

}  // namespace

std::vector<GradientDef> ElementwiseGradients() {
  return {
      {v1::Instruction::kUnary, UnaryGradient},
      {v1::Instruction::kBinary, BinaryGradient},
      {v1::Instruction::kSelect, SelectGradient},
      {v1::Instruction::kCast, CastGradient},
  };
}

}  // namespace vpod::graph
