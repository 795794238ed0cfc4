// Values that share the bytes of another one: no operation makes them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/graph/graph.h"

namespace vpod::graph {

Tensor Graph::NewAlias(TensorType type, Tensor of, Tensor gradient_to) {
  const uint32_t ipu = values_[of.id].ipu;
  const Tensor alias = NewValue(std::move(type));
  values_.back().alias_of = of.id;
  values_.back().gradient_to = gradient_to.id;
  values_.back().ipu = ipu;
  return alias;
}

Tensor Graph::Reshape(Tensor input, Dims dims) {
  if (!Usable({input}, "reshape")) return {};
  TensorType type{TypeOf(input).type, std::move(dims)};
  if (!program::Check(type).ok() || type.elements() != TypeOf(input).elements()) {
    return Refuse("reshape",
                  absl::StrCat("cannot reshape ", TypeOf(input).ToString(), " to ", type.ToString(),
                               ", must have ", TypeOf(input).elements(), " elements"));
  }
  return NewAlias(std::move(type), input, input);
}

Tensor Graph::Stop(Tensor input) {
  if (!Usable({input}, "stop")) return {};
  return NewAlias(TypeOf(input), input, /*gradient_to=*/{});
}

Tensor Graph::PassBy(Tensor value, Tensor source) {
  if (!Usable({value, source}, "pass_by")) return {};
  if (TypeOf(value) != TypeOf(source)) {
    return Refuse("pass_by",
                  absl::StrCat("the value is ", TypeOf(value).ToString(), ", the source ",
                               TypeOf(source).ToString(), ", must be of one type"));
  }
  return NewAlias(TypeOf(value), value, source);
}

}  // namespace vpod::graph
