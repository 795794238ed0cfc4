#include <cmath>
#include <numbers>

#include "client/graph/gradients/gradients.h"

namespace vpod::graph {
namespace {

// The derivative at x, which is float32: squares of float16 would be out of range.
Tensor SlopeOf(Graph& graph, v1::UnaryOperator function, Tensor x) {
  const auto number = [&](double value) { return graph.Constant({v1::FLOAT32, {}}, value); };
  const auto square_plus_one = [&] { return graph.Add(graph.Unary(v1::SQUARE, x), number(1)); };
  // (1 - x) * (1 + x), which does not cancel where x is near 1 or -1.
  const auto one_minus_square = [&] {
    return graph.Multiply(graph.Binary(v1::SUBTRACT, number(1), x), graph.Add(x, number(1)));
  };
  switch (function) {
    case v1::ERF: {
      const Tensor exponent = graph.Unary(v1::NEGATE, graph.Unary(v1::SQUARE, x));
      return graph.Multiply(graph.Unary(v1::EXPONENT, exponent),
                            number(2 / std::sqrt(std::numbers::pi)));
    }
    case v1::SIN:
      return graph.Unary(v1::COS, x);
    case v1::COS:
      return graph.Unary(v1::NEGATE, graph.Unary(v1::SIN, x));
    case v1::TAN:
      return graph.Unary(v1::RECIPROCAL, graph.Unary(v1::SQUARE, graph.Unary(v1::COS, x)));
    case v1::ASIN:
      return graph.Unary(v1::RECIPROCAL_ROOT, one_minus_square());
    case v1::ACOS:
      return graph.Unary(v1::NEGATE, graph.Unary(v1::RECIPROCAL_ROOT, one_minus_square()));
    case v1::ATAN:
      return graph.Unary(v1::RECIPROCAL, square_plus_one());
    case v1::SINH:
      return graph.Unary(v1::COSH, x);
    case v1::COSH:
      return graph.Unary(v1::SINH, x);
    case v1::ASINH:
      return graph.Unary(v1::RECIPROCAL_ROOT, square_plus_one());
    case v1::ACOSH:
      // The negative zero of x = -1 gives infinity, as it does in PyTorch.
      return graph.Unary(v1::RECIPROCAL_ROOT,
                         graph.Binary(v1::SUBTRACT, number(0), one_minus_square()));
    case v1::ATANH:
      return graph.Unary(v1::RECIPROCAL, one_minus_square());
    case v1::EXPM1:
      return graph.Unary(v1::EXPONENT, x);
    default:  // LOG1P
      return graph.Unary(v1::RECIPROCAL, graph.Add(x, number(1)));
  }
}

void UnaryGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const Tensor x{forward.inputs(0)}, y{forward.outputs(0)};
  const Tensor dy = gradients.Get(y.id);
  const auto scalar = [&](double value) {
    return graph.Constant({graph.TypeOf(x).type, {}}, value);
  };
  Tensor dx;
  switch (forward.unary().operator_()) {
    case v1::NEGATE:
      dx = graph.Unary(v1::NEGATE, dy);
      break;
    case v1::ABSOLUTE: {
      // dy where x > 0, -dy where x < 0, 0 at 0.
      const Tensor minus_x = graph.Unary(v1::NEGATE, x);
      dx = graph.Binary(v1::SUBTRACT, graph.Binary(v1::RELU_GRADIENT, x, dy),
                        graph.Binary(v1::RELU_GRADIENT, minus_x, dy));
      break;
    }
    case v1::EXPONENT:
      dx = graph.Multiply(dy, y);
      break;
    case v1::LOGARITHM:
      dx = graph.Binary(v1::DIVIDE, dy, x);
      break;
    case v1::SQUARE_ROOT:
      dx = graph.Binary(v1::DIVIDE, graph.Multiply(dy, scalar(0.5)), y);
      break;
    case v1::SQUARE:
      dx = graph.Multiply(graph.Multiply(dy, x), scalar(2));
      break;
    case v1::TANH:
      dx = graph.Binary(v1::TANH_GRADIENT, y, dy);
      break;
    case v1::SIGMOID:
      dx = graph.Binary(v1::SIGMOID_GRADIENT, y, dy);
      break;
    case v1::RELU:
      dx = graph.Binary(v1::RELU_GRADIENT, y, dy);
      break;
    case v1::RECIPROCAL:
      dx = graph.Unary(v1::NEGATE, graph.Multiply(dy, graph.Unary(v1::SQUARE, y)));
      break;
    case v1::ERF_INV: {
      // The error function's derivative is 2 / sqrt(pi) * exp(-y^2).
      const Tensor exponent = graph.Unary(v1::EXPONENT, graph.Unary(v1::SQUARE, y));
      dx = graph.Multiply(dy, graph.Multiply(exponent, scalar(std::sqrt(std::numbers::pi) / 2)));
      break;
    }
    case v1::ERF:
    case v1::SIN:
    case v1::COS:
    case v1::TAN:
    case v1::ASIN:
    case v1::ACOS:
    case v1::ATAN:
    case v1::SINH:
    case v1::COSH:
    case v1::ASINH:
    case v1::ACOSH:
    case v1::ATANH:
    case v1::EXPM1:
    case v1::LOG1P: {
      const Tensor slope = SlopeOf(graph, forward.unary().operator_(), graph.Cast(x, v1::FLOAT32));
      dx = graph.Cast(graph.Multiply(graph.Cast(dy, v1::FLOAT32), slope), graph.TypeOf(x).type);
      break;
    }
    case v1::RECIPROCAL_ROOT:
      // -y^3 / 2
      dx = graph.Multiply(graph.Multiply(dy, graph.Multiply(y, scalar(-0.5))),
                          graph.Unary(v1::SQUARE, y));
      break;
    default:
      return;  // constant wherever there is a derivative
  }
  gradients.Add(x.id, dx);
}

void BinaryGradient(Graph& graph, const v1::Instruction& forward, GradientMap& gradients) {
  const v1::BinaryOperator function = forward.binary().operator_();
  const Tensor a{forward.inputs(0)}, b{forward.inputs(1)}, y{forward.outputs(0)};
  const Tensor dy = gradients.Get(y.id);
  const auto scalar = [&](double value) {
    return graph.Constant({graph.TypeOf(dy).type, {}}, value);
  };
  const auto add = [&](Tensor to, Tensor gradient) {
    gradients.Add(to.id, graph.ReduceToType(gradient, graph.TypeOf(to)));
  };
  switch (function) {
    case v1::ADD:
      add(a, dy);
      add(b, dy);
      break;
    case v1::SUBTRACT:
      add(a, dy);
      add(b, graph.Unary(v1::NEGATE, dy));
      break;
    case v1::MULTIPLY:
      add(a, graph.Multiply(dy, b));
      add(b, graph.Multiply(dy, a));
      break;
    case v1::DIVIDE: {
      const Tensor quotient = graph.Binary(v1::DIVIDE, dy, b);
      add(a, quotient);
      add(b, graph.Unary(v1::NEGATE, graph.Multiply(quotient, y)));
      break;
    }
    case v1::MAXIMUM:
    case v1::MINIMUM: {
      // The chosen operand takes the gradient; equals take half of it each.
      const auto wins = function == v1::MAXIMUM ? v1::GREATER : v1::LESS;
      const Tensor zero = scalar(0), half = graph.Multiply(dy, scalar(0.5));
      const Tensor shared = graph.Select(graph.Binary(v1::EQUAL, a, b), half, zero);
      add(a, graph.Select(graph.Binary(wins, a, b), dy, shared));
      add(b, graph.Select(graph.Binary(wins, b, a), dy, shared));
      break;
    }
    case v1::RELU_GRADIENT:
      // Constant in a but for the kink.
      add(b, graph.Binary(v1::RELU_GRADIENT, a, dy));
      break;
    case v1::TANH_GRADIENT: {
      // y = (1 - a²)·b: dy/da = -2·a·b
      const Tensor minus_two = graph.Constant({graph.TypeOf(a).type, {}}, -2);
      add(a, graph.Multiply(graph.Multiply(minus_two, graph.Multiply(a, b)), dy));
      add(b, graph.Binary(v1::TANH_GRADIENT, a, dy));
      break;
    }
    case v1::SIGMOID_GRADIENT: {
      // y = a·(1 - a)·b: dy/da = (1 - 2·a)·b
      const Tensor one = graph.Constant({graph.TypeOf(a).type, {}}, 1);
      const Tensor slope = graph.Binary(v1::SUBTRACT, graph.Binary(v1::SUBTRACT, one, a), a);
      add(a, graph.Multiply(graph.Multiply(slope, b), dy));
      add(b, graph.Binary(v1::SIGMOID_GRADIENT, a, dy));
      break;
    }
    case v1::POWER: {
      // b * a^(b-1), and 0 where b is 0; y * log a, and 0 where a is 0 and b is not below it.
      const Tensor zero = scalar(0);
      const Tensor lower = graph.Binary(v1::POWER, a, graph.Binary(v1::SUBTRACT, b, scalar(1)));
      add(a, graph.Select(graph.Binary(v1::EQUAL, b, zero), zero,
                          graph.Multiply(dy, graph.Multiply(b, lower))));
      const Tensor vanishes = graph.Binary(v1::LOGICAL_AND, graph.Binary(v1::EQUAL, a, zero),
                                           graph.Binary(v1::GREATER_EQUAL, b, zero));
      add(b, graph.Select(vanishes, zero,
                          graph.Multiply(dy, graph.Multiply(y, graph.Unary(v1::LOGARITHM, a)))));
      break;
    }
    case v1::ATAN2: {
      // b / (a^2 + b^2) and -a / (a^2 + b^2)
      const Tensor squares = graph.Add(graph.Unary(v1::SQUARE, a), graph.Unary(v1::SQUARE, b));
      const Tensor part = graph.Binary(v1::DIVIDE, dy, squares);
      add(a, graph.Multiply(part, b));
      add(b, graph.Unary(v1::NEGATE, graph.Multiply(part, a)));
      break;
    }
    case v1::REMAINDER:
    case v1::FMOD: {
      // a - b * n, where the integer n is constant.
      const auto rounded = function == v1::FMOD ? v1::TRUNCATE : v1::FLOOR;
      const Tensor n = graph.Unary(rounded, graph.Binary(v1::DIVIDE, a, b));
      add(a, dy);
      add(b, graph.Unary(v1::NEGATE, graph.Multiply(dy, n)));
      break;
    }
    default:
      break;  // comparisons, logic and operations of integers have no derivative
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
