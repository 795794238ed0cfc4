// Random elements, of the graph's own generator: distributions are PyTorch's, elements are not.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

Term Random(const Call& call, v1::Random::Distribution distribution, const Dims& dims) {
  return call.term(call.graph().Random(distribution, {v1::FLOAT32, dims}));
}

// Whether each element is true, with the probability.
absl::StatusOr<Term> Chosen(const Call& call, double probability) {
  if (!(probability >= 0 && probability <= 1))
    return call.Refuse(absl::StrCat("the probability is ", probability, ", must be 0 to 1"));
  const Term uniform = Random(call, v1::Random::UNIFORM, call.DimsOf(call.tensor(0)));
  return uniform.Apply(v1::LESS, uniform.Number(probability));
}

// (size, type…)
template <v1::Random::Distribution kDistribution>
Outputs OfSize(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(1, v1::FLOAT32));
  return Tensors{call.graph().Random(kDistribution, {type, call.ints(0)})};
}

// (self, probability)
Outputs Bernoulli(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Term chosen, Chosen(call, call.number(1)));
  return Tensors{call.graph().Cast(chosen, call.TypeOf(call.tensor(0)).type)};
}

// (probabilities)
Outputs BernoulliOf(const Call& call) {
  const Tensor self = call.tensor(0);
  const Term uniform = Random(call, v1::Random::UNIFORM, call.DimsOf(self));
  const Term probability = call.term(call.graph().Cast(self, v1::FLOAT32));
  return Tensors{call.graph().Cast(uniform.Apply(v1::LESS, probability), call.TypeOf(self).type)};
}

template <v1::Random::Distribution kDistribution>
Outputs Like(const Call& call) {
  const TensorType like = call.TypeOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(1, like.type));
  return Tensors{call.graph().Random(kDistribution, {type, like.dims})};
}

// (self, from, to)
Outputs Uniform(const Call& call) {
  const double from = call.number(1), to = call.number(2);
  if (!(from <= to && std::isfinite(to - from))) {
    return call.Refuse(
        absl::StrCat("the range is ", from, " to ", to, ", must not fall and must be finite"));
  }
  const Term unit = Random(call, v1::Random::UNIFORM, call.DimsOf(call.tensor(0)));
  const Term scaled = unit * (to - from) + from;
  return Tensors{call.Narrow(scaled, call.tensor(0))};
}

// Normal elements times the deviation plus the mean, each a number or a tensor. No gradient flows
// to either in PyTorch.
Outputs NormalOf(const Call& call, size_t mean, size_t deviation, const TensorType& type) {
  for (size_t i : {mean, deviation}) {
    if (std::holds_alternative<Tensor>(call.at(i))) continue;
    if (!std::isfinite(call.number(i)) || (i == deviation && call.number(i) < 0)) {
      return call.Refuse(absl::StrCat("the ", i == mean ? "mean" : "deviation", " is ",
                                      call.number(i), ", must be ",
                                      i == mean ? "" : "0 or more and ", "finite"));
    }
  }
  const Term unit = Random(call, v1::Random::NORMAL, type.dims);
  const auto value = [&](size_t i) {
    const auto* tensor = std::get_if<Tensor>(&call.at(i));
    return tensor != nullptr ? call.term(call.graph().Cast(*tensor, v1::FLOAT32))
                             : unit.Number(call.number(i));
  };
  const Tensor result = call.graph().Cast(unit * value(deviation) + value(mean), type.type);
  return Tensors{call.graph().Stop(result)};
}

// (self, mean, deviation)
Outputs Normal(const Call& call) { return NormalOf(call, 1, 2, call.TypeOf(call.tensor(0))); }

// (mean, deviation, size, generator, type…)
Outputs NormalOfSize(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(4, v1::FLOAT32));
  return NormalOf(call, 0, 1, {type, call.ints(2)});
}

// (mean, deviation), one or both of them tensors.
Outputs NormalAround(const Call& call) {
  TensorType type{v1::FLOAT32, {}};
  bool is_first = true;
  for (size_t i : {0, 1}) {
    const auto* tensor = std::get_if<Tensor>(&call.at(i));
    if (tensor == nullptr) continue;
    const TensorType own = call.TypeOf(*tensor);
    VPOD_ASSIGN_OR_RETURN(type.dims, program::BroadcastDims(type.dims, own.dims));
    type.type = is_first ? own.type : PromotedType(type.type, own.type);
    is_first = false;
  }
  return NormalOf(call, 0, 1, type);
}

// (self, mean, deviation): of the logarithm.
Outputs LogNormal(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const Tensors logarithms, NormalOf(call, 1, 2, {v1::FLOAT32, type.dims}));
  return Tensors{call.Narrow(Exp(call.term(logarithms[0])), call.tensor(0))};
}

// A number of argument i that is above 0.
absl::StatusOr<double> Positive(const Call& call, size_t i) {
  const double number = call.number(i);
  if (number > 0 && std::isfinite(number)) return number;
  return call.Refuse(absl::StrCat("argument ", i, " is ", number, ", must be above 0 and finite"));
}

// The logarithm of uniform numbers above 0 and up to 1, in float32.
Term LogUniform(const Call& call) {
  return Log1p(-Random(call, v1::Random::UNIFORM, call.DimsOf(call.tensor(0))));
}

// (self, rate)
Outputs Exponential(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const double rate, Positive(call, 1));
  return Tensors{call.Narrow(LogUniform(call) * (-1 / rate), call.tensor(0))};
}

// (self, probability): how many trials it takes to the first success.
Outputs Geometric(const Call& call) {
  const double probability = call.number(1);
  if (!(probability > 0 && probability < 1)) {
    return call.Refuse(
        absl::StrCat("the probability is ", probability, ", must be above 0 and below 1"));
  }
  const Term trials = (LogUniform(call) * (1 / std::log1p(-probability))).Apply(v1::CEIL);
  return Tensors{call.Narrow(Max(trials, 1), call.tensor(0))};
}

// (self, median, scale)
Outputs Cauchy(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const double scale, Positive(call, 2));
  const Term unit = Random(call, v1::Random::UNIFORM, call.DimsOf(call.tensor(0)));
  const Term slope = ((unit - 0.5) * std::numbers::pi).Apply(v1::TAN);
  return Tensors{call.Narrow(slope * scale + call.number(1), call.tensor(0))};
}

// (self, probabilities)
Outputs BernoulliByTensor(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  const Term uniform = Random(call, v1::Random::UNIFORM, type.dims);
  const Term probability = call.term(call.graph().Cast(call.tensor(1), v1::FLOAT32));
  return Tensors{call.graph().Cast(uniform.Apply(v1::LESS, probability), type.type)};
}

// --- Integers ---

// From `low` to below `high`. Remainders of 32 random bits, as PyTorch draws them.
Outputs Integers(const Call& call, int64_t low, int64_t high, const TensorType& type) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (low >= high || low < -kLimit || high > kLimit || high - low > kLimit) {
    return call.Refuse(absl::StrCat("integers from ", low, " to below ", high,
                                    " must be one or more, of 31 bits"));
  }
  Graph& graph = call.graph();
  const Term bits = call.term(graph.Random(v1::Random::BITS, {v1::UINT32, type.dims}));
  const Term drawn = bits.Apply(v1::REMAINDER, bits.Number(static_cast<double>(high - low)));
  const Term moved = call.term(graph.Cast(drawn, v1::INT32)) + static_cast<double>(low);
  return Tensors{graph.Cast(moved, type.type)};
}

// (high, size, type…)
Outputs RandInt(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(2, v1::INT32));
  return Integers(call, 0, call.integer(0), {type, call.ints(1)});
}

// (low, high, size, type…)
Outputs RandIntFrom(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(3, v1::INT32));
  return Integers(call, call.integer(0), call.integer(1), {type, call.ints(2)});
}

// (like, high, type…)
Outputs RandIntLike(const Call& call) {
  const TensorType like = call.TypeOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(2, like.type));
  return Integers(call, 0, call.integer(1), {type, like.dims});
}

// (like, low, high, type…)
Outputs RandIntLikeFrom(const Call& call) {
  const TensorType like = call.TypeOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(3, like.type));
  return Integers(call, call.integer(1), call.integer(2), {type, like.dims});
}

// How many integers from 0 on a type holds without gaps.
int64_t WholeNumbers(v1::DataType type) {
  if (type == v1::FLOAT32) return (int64_t{1} << 24) + 1;
  if (type == v1::FLOAT16) return (int64_t{1} << 11) + 1;
  if (type == v1::BOOL) return 2;
  const auto bits = static_cast<int>(8 * program::SizeOf(type));
  return int64_t{1} << std::min(program::IsSigned(type) ? bits - 1 : bits, 31);
}

// (self)
Outputs AnyInteger(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  return Integers(call, 0, WholeNumbers(type.type), type);
}

// (self, high)
Outputs IntegerBelow(const Call& call) {
  return Integers(call, 0, call.integer(1), call.TypeOf(call.tensor(0)));
}

// (self, low, high?)
Outputs IntegerFrom(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  return Integers(call, call.integer(1), call.has(2) ? call.integer(2) : WholeNumbers(type.type),
                  type);
}

// (count, type…): the places of random numbers once they are sorted.
Outputs RandPerm(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(1, v1::INT32));
  Graph& graph = call.graph();
  const Tensor keys = graph.Random(v1::Random::BITS, {v1::UINT32, {call.integer(0)}});
  return Tensors{graph.Cast(graph.Sort(keys, 0).places, type)};
}

// (input, probability, train): the output, and what was kept.
Outputs NativeDropout(const Call& call) {
  const Tensor input = call.tensor(0);
  const TensorType type = call.TypeOf(input);
  if (call.has(2) && !call.flag(2))
    return Tensors{input, call.graph().Constant({v1::BOOL, type.dims}, 1)};
  VPOD_ASSIGN_OR_RETURN(const Term dropped, Chosen(call, call.number(1)));
  const double scale = call.number(1) < 1 ? 1 / (1 - call.number(1)) : 0;
  const Term output = Where(dropped, 0.0, call.Wide(0) * scale);
  return Tensors{call.Narrow(output, input), dropped.Apply(v1::LOGICAL_NOT)};
}

}  // namespace

std::vector<Row> RandomRows() {
  return {
      {"bernoulli_.float", "tensor, number=0.5, any?=None", Bernoulli},
      {"bernoulli.p", "tensor, number, any?=None", Bernoulli},
      {"bernoulli.default", "tensor, any?=None", BernoulliOf},
      {"rand_like.default", WithOptions("tensor"), Like<v1::Random::UNIFORM>},
      {"randn_like.default", WithOptions("tensor"), Like<v1::Random::NORMAL>},
      {"uniform_.default", "tensor, number=0, number=1, any?=None", Uniform},
      {"normal_.default", "tensor, number=0, number=1, any?=None", Normal},
      {"normal.float_float", WithOptions("number, number, ints, any?=None"), NormalOfSize},
      {"normal.Tensor_float", "tensor, number=1, any?=None", NormalAround},
      {"normal.float_Tensor", "number, tensor, any?=None", NormalAround},
      {"normal.Tensor_Tensor", "tensor, tensor, any?=None", NormalAround},
      {"log_normal_.default", "tensor, number=1, number=2, any?=None", LogNormal},
      {"exponential_.default", "tensor, number=1, any?=None", Exponential},
      {"geometric_.default", "tensor, number, any?=None", Geometric},
      {"cauchy_.default", "tensor, number=0, number=1, any?=None", Cauchy},
      {"bernoulli_.Tensor", "tensor, tensor, any?=None", BernoulliByTensor},
      {"rand.default", WithOptions("ints"), OfSize<v1::Random::UNIFORM>},
      {"randn.default", WithOptions("ints"), OfSize<v1::Random::NORMAL>},
      {"randint.default", WithOptions("int, ints"), RandInt},
      {"randint.low", WithOptions("int, int, ints"), RandIntFrom},
      {"randint_like.default", WithOptions("tensor, int"), RandIntLike},
      {"randint_like.low_dtype", WithOptions("tensor, int, int"), RandIntLikeFrom},
      {"random_.default", "tensor, any?=None", AnyInteger},
      {"random_.to", "tensor, int, any?=None", IntegerBelow},
      {"random_.from", "tensor, int, int?, any?=None", IntegerFrom},
      {"randperm.default", WithOptions("int"), RandPerm},
      {"native_dropout.default", "tensor, number, bool?", NativeDropout},
  };
}

}  // namespace vpod::aten
