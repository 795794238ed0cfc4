// Random elements, of the graph's own generator: distributions are PyTorch's, elements are not.
#include <cmath>

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

// (self, mean, deviation)
Outputs Normal(const Call& call) {
  const double mean = call.number(1), deviation = call.number(2);
  if (!(deviation >= 0 && std::isfinite(deviation))) {
    return call.Refuse(
        absl::StrCat("the deviation is ", deviation, ", must be 0 or more and finite"));
  }
  if (!std::isfinite(mean))
    return call.Refuse(absl::StrCat("the mean is ", mean, ", must be finite"));
  const Term unit = Random(call, v1::Random::NORMAL, call.DimsOf(call.tensor(0)));
  return Tensors{call.Narrow(unit * deviation + mean, call.tensor(0))};
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
      {"rand_like.default", "tensor, type?=None, any?=None, any?=None, any?=None, any?=None",
       Like<v1::Random::UNIFORM>},
      {"randn_like.default", "tensor, type?=None, any?=None, any?=None, any?=None, any?=None",
       Like<v1::Random::NORMAL>},
      {"uniform_.default", "tensor, number=0, number=1, any?=None", Uniform},
      {"normal_.default", "tensor, number=0, number=1, any?=None", Normal},
      {"native_dropout.default", "tensor, number, bool?", NativeDropout},
  };
}

}  // namespace vpod::aten
