// Activations and their gradients. Formulas are in float32 and rounded once; at the places where a
// slope jumps they have PyTorch's.
#include "client/nn/activations.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

using Formula = Term (*)(const Call& call, Term x);

// (self, …)
template <Formula kFormula>
Outputs Of(const Call& call) {
  return Tensors{call.Narrow(kFormula(call, call.Wide(0)), call.tensor(0))};
}

// (output gradient, self, …): the slope times the gradient.
template <Formula kSlope>
Outputs Backward(const Call& call) {
  return Tensors{call.Narrow(call.Wide(0) * kSlope(call, call.Wide(1)), call.tensor(0))};
}

template <v1::UnaryOperator kFunction>
Term Apply(const Call&, Term x) {
  return x.Apply(kFunction);
}

// Exact in any type, so that nothing is widened: a norm before it takes it over (fusion.h).
Outputs Relu(const Call& call) { return Tensors{call.term(call.tensor(0)).Apply(v1::RELU)}; }

Term SigmoidSlope(const Call&, Term y) { return (1 - y) * y; }
Term TanhSlope(const Call&, Term y) { return 1 - Square(y); }

Term Silu(const Call& call, Term x) { return call.term(call.graph().Silu(x)); }
Term SiluSlope(const Call&, Term x) {
  const Term s = x.Apply(v1::SIGMOID);
  return s * (x * (1 - s) + 1);
}

Term Between(Term x, double low, double high, double below, Term inside, Term above) {
  return Where(x.Apply(v1::LESS_EQUAL, x.Number(low)), below,
               Where(x.Apply(v1::GREATER_EQUAL, x.Number(high)), above, inside));
}

Term HardSigmoid(const Call&, Term x) {
  return Between(x, -3, 3, 0, (x + 3) / x.Number(6), x.Number(1));
}
Term HardSigmoidSlope(const Call&, Term x) {
  return Between(x, -3, 3, 0, x.Number(1.0 / 6), x.Number(0));
}
Term HardSwish(const Call&, Term x) {
  const Term shifted = x + 3;
  const Term gate =
      Where(shifted.Apply(v1::LESS, shifted.Number(0)), 0.0, Where(shifted > 6, 6.0, shifted));
  return x * gate / x.Number(6);
}
Term HardSwishSlope(const Call&, Term x) {
  return Where(x.Apply(v1::LESS, x.Number(-3)), 0.0, Where(x > 3, 1.0, x / x.Number(3) + 0.5));
}
// (self, least, most): exact in any type, so that nothing is widened. A norm before a ReLU6 takes
// it over (fusion.h).
Outputs HardTanh(const Call& call) {
  const Term x = call.term(call.tensor(0));
  const double low = call.number(1), high = call.number(2);
  if (low == 0 && high == 6 && program::IsFloat(call.TypeOf(x).type))
    return Tensors{x.Apply(v1::RELU6)};
  return Tensors{Between(x, low, high, low, x, x.Number(high))};
}
// (output gradient, self, least, most): what passes, without a product that infinities would spoil.
Outputs HardTanhBackward(const Call& call) {
  const Term gradient = call.term(call.tensor(0)), x = call.term(call.tensor(1));
  return Tensors{Between(x, call.number(2), call.number(3), 0, gradient, gradient.Number(0))};
}

// (self, threshold, value)
Term Threshold(const Call& call, Term x) {
  return Where(x.Apply(v1::LESS_EQUAL, x.Number(call.number(1))), call.number(2), x);
}
// (output gradient, self, threshold): what passes, without a product that infinities would spoil.
Outputs ThresholdBackward(const Call& call) {
  const Term x = call.term(call.tensor(1)), gradient = call.term(call.tensor(0));
  return Tensors{Where(x.Apply(v1::LESS_EQUAL, x.Number(call.number(2))), 0.0, gradient)};
}

Term LeakyRelu(const Call& call, Term x) { return Where(x > 0, x, x * call.number(1)); }
Term LeakyReluSlope(const Call& call, Term x) { return Where(x > 0, x.Number(1), call.number(2)); }

// (self, alpha, scale, input scale)
Term Elu(const Call& call, Term x) {
  const Term low = (x * call.number(3)).Apply(v1::EXPM1) * (call.number(1) * call.number(2));
  return Where(x > 0, x * call.number(2), low);
}

// (self, alpha)
Term Celu(const Call& call, Term x) {
  const double alpha = call.number(1);
  return Where(x > 0, x, (x * (1 / alpha)).Apply(v1::EXPM1) * alpha);
}

// (self, limit)
Term HardShrink(const Call& call, Term x) {
  return Where(Abs(x).Apply(v1::LESS_EQUAL, x.Number(call.number(1))), 0.0, x);
}
Term SoftShrink(const Call& call, Term x) {
  const double limit = call.number(1);
  return Where(x > limit, x - limit, Where(x.Apply(v1::LESS, x.Number(-limit)), x + limit, 0.0));
}

// (self, beta, threshold)
Term Softplus(const Call& call, Term x) {
  const Term scaled = x * call.number(1);
  return Where(scaled > call.number(2), x, nn::Softplus(scaled) / x.Number(call.number(1)));
}
Term Mish(const Call&, Term x) { return x * nn::Softplus(x).Apply(v1::TANH); }
Term LogSigmoid(const Call&, Term x) { return -nn::Softplus(-x); }

// (self): the value, and exp(-|self|), which PyTorch keeps for the gradient.
Outputs LogSigmoidForward(const Call& call) {
  const Term x = call.Wide(0);
  return Tensors{call.Narrow(LogSigmoid(call, x), call.tensor(0)),
                 call.Narrow(Exp(-Abs(x)), call.tensor(0))};
}

// (self, dimension): the first half of it times the sigmoid of the second.
Outputs Glu(const Call& call) {
  Graph& graph = call.graph();
  const Term x = call.Wide(0);
  const Dims dims = call.DimsOf(x);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size()));
  if (dims.empty() || dims[axis] % 2 != 0) {
    return call.Refuse(absl::StrCat("dimension ", axis, " of ", call.TypeOf(x).ToString(),
                                    " must have two halves"));
  }
  Dims begin(dims.size(), 0), half = dims;
  half[axis] /= 2;
  const Term values = call.term(graph.Slice(x, begin, half));
  begin[axis] = half[axis];
  const Term gate = call.term(graph.Slice(x, begin, half)).Apply(v1::SIGMOID);
  return Tensors{call.Narrow(values * gate, call.tensor(0))};
}

absl::StatusOr<bool> IsTanhGelu(const Call& call, size_t i) {
  if (call.text(i) == "tanh") return true;
  if (call.text(i) == "none") return false;
  return call.Refuse("the approximation must be 'none' or 'tanh'");
}

Outputs Gelu(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const bool tanh, IsTanhGelu(call, 1));
  const Term x = call.Wide(0);
  const Tensor y = tanh ? nn::TanhGelu(call.graph(), x) : call.graph().Gelu(x);
  return Tensors{call.Narrow(y, call.tensor(0))};
}

// The density of the normal distribution.
Term Density(Term x) {
  return Exp(Square(x) * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}

Term GeluSlope(Term x) {
  const Term probability = ((x * (1 / std::numbers::sqrt2)).Apply(v1::ERF) + 1) * 0.5;
  return probability + x * Density(x);
}

Term TanhGeluSlope(Term x) {
  constexpr double kCube = 0.044715;
  const double scale = std::sqrt(2 * std::numbers::inv_pi);
  const Term t = ((Square(x) * kCube + 1) * x * scale).Apply(v1::TANH);
  const Term inner = (Square(x) * (3 * kCube) + 1) * scale;
  return (t + 1) * 0.5 + x * 0.5 * (1 - Square(t)) * inner;
}

Outputs GeluBackward(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const bool tanh, IsTanhGelu(call, 2));
  const Term x = call.Wide(1), slope = tanh ? TanhGeluSlope(x) : GeluSlope(x);
  return Tensors{call.Narrow(call.Wide(0) * slope, call.tensor(0))};
}

// (self, weight): a slope for each channel, or one.
Outputs Prelu(const Call& call) {
  const Term x = call.Wide(0);
  Term slope = call.Wide(1);
  const Dims dims = call.DimsOf(x), channels = call.DimsOf(slope);
  if (dims.size() > 1 && channels.size() == 1) {
    Dims along(dims.size(), 1);
    along[1] = channels[0];
    slope = call.term(call.graph().Reshape(slope, along));
  }
  return Tensors{call.Narrow(Where(x > 0, x, slope * x), call.tensor(0))};
}

}  // namespace

std::vector<Row> ActivationRows() {
  return {
      {"relu.default", "tensor", Relu},
      {"sigmoid.default", "tensor", Of<Apply<v1::SIGMOID>>},
      {"sigmoid_backward.default", "tensor, tensor", Backward<SigmoidSlope>},
      {"tanh.default", "tensor", Of<Apply<v1::TANH>>},
      {"tanh_backward.default", "tensor, tensor", Backward<TanhSlope>},
      {"gelu.default", "tensor, text=none", Gelu},
      {"gelu_backward.default", "tensor, tensor, text=none", GeluBackward},
      {"silu.default", "tensor", Of<Silu>},
      {"silu_backward.default", "tensor, tensor", Backward<SiluSlope>},
      {"hardsigmoid.default", "tensor", Of<HardSigmoid>},
      {"hardsigmoid_backward.default", "tensor, tensor", Backward<HardSigmoidSlope>},
      {"hardswish.default", "tensor", Of<HardSwish>},
      {"hardswish_backward.default", "tensor, tensor", Backward<HardSwishSlope>},
      {"hardtanh.default", "tensor, number=-1, number=1", HardTanh},
      {"hardtanh_backward.default", "tensor, tensor, number, number", HardTanhBackward},
      {"threshold.default", "tensor, number, number", Of<Threshold>},
      {"threshold_backward.default", "tensor, tensor, number", ThresholdBackward},
      {"leaky_relu.default", "tensor, number=0.01", Of<LeakyRelu>},
      {"leaky_relu_backward.default", "tensor, tensor, number, bool", Backward<LeakyReluSlope>},
      {"elu.default", "tensor, number=1, number=1, number=1", Of<Elu>},
      {"celu.default", "tensor, number=1", Of<Celu>},
      {"glu.default", "tensor, int=-1", Glu},
      {"hardshrink.default", "tensor, number=0.5", Of<HardShrink>},
      {"softshrink.default", "tensor, number=0.5", Of<SoftShrink>},
      {"softplus.default", "tensor, number=1, number=20", Of<Softplus>},
      {"mish.default", "tensor", Of<Mish>},
      {"log_sigmoid.default", "tensor", Of<LogSigmoid>},
      {"log_sigmoid_forward.default", "tensor", LogSigmoidForward},
      {"prelu.default", "tensor, tensor", Prelu},
  };
}

}  // namespace vpod::aten
