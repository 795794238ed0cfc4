#include "client/aten/call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vpod::aten {
namespace {

// BOOL, integers, floats: a higher one of any operand decides over the dimensions.
int Category(v1::DataType type) { return type == v1::BOOL ? 0 : program::IsFloat(type) ? 2 : 1; }

// Tensors with dimensions decide the type of a result, then scalars, then Python's numbers.
struct Promotion {
  v1::DataType type = v1::DATA_TYPE_UNSPECIFIED;
  int rank = 0;  // of the decision: 0 for numbers, 1 for scalars, 2 for others
};

v1::DataType Decide(const Promotion& a, const Promotion& b) {
  if (a.rank == b.rank) return PromotedType(a.type, b.type);
  const auto& [high, low] = a.rank > b.rank ? std::pair(a, b) : std::pair(b, a);
  return Category(low.type) > Category(high.type) ? low.type : high.type;
}

}  // namespace

v1::DataType PromotedType(v1::DataType a, v1::DataType b) {
  if (a == b) return a;
  if (Category(a) < Category(b)) std::swap(a, b);
  if (Category(a) > Category(b)) return a;
  if (program::IsFloat(a)) return v1::FLOAT32;
  if (program::SizeOf(a) < program::SizeOf(b)) std::swap(a, b);
  if (program::IsSigned(a) == program::IsSigned(b)) return a;
  if (program::IsSigned(a) && program::SizeOf(a) > program::SizeOf(b)) return a;
  // The next signed type that holds both.
  return program::SizeOf(a) == 1 ? v1::INT16 : v1::INT32;
}

std::string WithOptions(absl::string_view parameters) {
  return absl::StrCat(parameters, ", type?=None, any?=None, any?=None, any?=None, any?=None");
}

double Call::number(size_t i) const {
  const Argument& argument = arguments_[i];
  if (const auto* flag = std::get_if<bool>(&argument)) return *flag ? 1 : 0;
  if (const auto* integer = std::get_if<int64_t>(&argument)) return static_cast<double>(*integer);
  return std::get<double>(argument);
}

int64_t Call::integer(size_t i) const {
  const auto* integer = std::get_if<int64_t>(&arguments_[i]);  // float64 has not all of them
  return integer != nullptr ? *integer : static_cast<int64_t>(number(i));
}

absl::StatusOr<v1::DataType> Call::type(size_t i, v1::DataType otherwise) const {
  if (!has(i)) return otherwise;
  switch (integer(i)) {  // c10::ScalarType
    case 0:
      return v1::UINT8;
    case 1:
      return v1::INT8;
    case 2:
      return v1::INT16;
    case 3:
    case 4:
      return v1::INT32;
    case 5:
      return v1::FLOAT16;
    case 6:
    case 7:
      return v1::FLOAT32;
    case 11:
      return v1::BOOL;
    default:
      return absl::UnimplementedError(absl::StrCat(
          "aten::", name_, ": no device type stands for PyTorch's type number ", integer(i)));
  }
}

absl::Status Call::Refuse(absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat("aten::", name_, ": ", why));
}

absl::StatusOr<uint32_t> Call::Axis(int64_t axis, size_t rank) const {
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  if (axis < -count || axis >= count) {
    return Refuse(absl::StrCat("dimension ", axis, " must be ", -count, " to ", count - 1));
  }
  return static_cast<uint32_t>(axis < 0 ? axis + count : axis);
}

absl::StatusOr<std::vector<uint32_t>> Call::Axes(const Dims& axes, size_t rank) const {
  std::vector<uint32_t> result;
  for (int64_t axis : axes) {
    VPOD_ASSIGN_OR_RETURN(const uint32_t place, Axis(axis, rank));
    result.push_back(place);
  }
  if (axes.empty()) {
    for (uint32_t axis = 0; axis < rank; ++axis) result.push_back(axis);
  }
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    return Refuse(absl::StrCat("dimensions [", absl::StrJoin(axes, ","), "] must be different"));
  if (rank == 0) result.clear();
  return result;
}

absl::StatusOr<Dims> Call::PerDimension(size_t i, size_t count, const Dims& missing) const {
  Dims numbers = ints(i);
  if (numbers.empty()) numbers = missing;
  if (numbers.size() == 1) numbers.assign(count, numbers[0]);
  if (numbers.size() != count) {
    return Refuse(
        absl::StrCat("argument ", i, " has ", numbers.size(), " numbers, must have 1 or ", count));
  }
  return numbers;
}

Term Call::Wide(Tensor tensor) const {
  const bool half = TypeOf(tensor).type == v1::FLOAT16;
  return {graph_, half ? graph_.Cast(tensor, v1::FLOAT32) : tensor};
}

Tensor Call::AsFloat(Tensor tensor) const {
  return program::IsFloat(TypeOf(tensor).type) ? tensor : graph_.Cast(tensor, v1::FLOAT32);
}

absl::StatusOr<std::pair<Term, Term>> Call::Promoted(size_t i, size_t j) const {
  const auto promotion = [&](size_t k) -> Promotion {
    if (const auto* tensor = std::get_if<Tensor>(&arguments_[k])) {
      const TensorType type = TypeOf(*tensor);
      return {type.type, type.dims.empty() ? 1 : 2};
    }
    if (std::holds_alternative<bool>(arguments_[k])) return {v1::BOOL, 0};
    if (std::holds_alternative<int64_t>(arguments_[k])) return {v1::INT32, 0};
    return {v1::FLOAT32, 0};
  };
  const v1::DataType type = Decide(promotion(i), promotion(j));
  const auto value = [&](size_t k) -> Term {
    if (const auto* tensor = std::get_if<Tensor>(&arguments_[k]))
      return {graph_, graph_.Cast(*tensor, type)};
    return {graph_, Scalar(type, number(k))};
  };
  const Term first = value(i), second = value(j);
  VPOD_RETURN_IF_ERROR(graph_.status());
  return std::pair(first, second);
}

// Inputs that are values of their own: gradients end there, wherever the inputs came from.
Tensors Pullback(const Call& call, const Tensors& inputs, Tensor gradient,
                 absl::FunctionRef<Tensor(const Tensors&)> forward) {
  Graph& graph = call.graph();
  Tensors own;
  for (Tensor input : inputs) own.push_back(graph.Reshape(input, call.DimsOf(input)));
  const Tensor result = forward(own);
  if (!graph.status().ok()) return Tensors(inputs.size());
  return graph.Gradients(result, own, graph.Cast(gradient, v1::FLOAT32));
}

}  // namespace vpod::aten
