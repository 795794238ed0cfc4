// Tensors of equal or counted elements, and copies with another type.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

// The type of a number that nothing else gives a type.
v1::DataType TypeOfNumber(const Argument& number) {
  if (std::holds_alternative<bool>(number)) return v1::BOOL;
  return std::holds_alternative<int64_t>(number) ? v1::INT32 : v1::FLOAT32;
}

Outputs Filled(const Call& call, Dims dims, size_t type, v1::DataType otherwise, double value) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType chosen, call.type(type, otherwise));
  return Tensors{call.graph().Constant({chosen, std::move(dims)}, value)};
}

// (size, type…)
template <int kValue>
Outputs OfSize(const Call& call) {
  return Filled(call, call.ints(0), 1, v1::FLOAT32, kValue);
}

// (like, type…)
template <int kValue>
Outputs Like(const Call& call) {
  const TensorType like = call.TypeOf(call.tensor(0));
  return Filled(call, like.dims, 1, like.type, kValue);
}

// (self, size, type…)
template <int kValue>
Outputs New(const Call& call) {
  return Filled(call, call.ints(1), 2, call.TypeOf(call.tensor(0)).type, kValue);
}

Outputs EmptyStrided(const Call& call) { return Filled(call, call.ints(0), 2, v1::FLOAT32, 0); }

Outputs NewEmptyStrided(const Call& call) {
  return Filled(call, call.ints(1), 3, call.TypeOf(call.tensor(0)).type, 0);
}

Outputs Full(const Call& call) {
  return Filled(call, call.ints(0), 2, TypeOfNumber(call.at(1)), call.number(1));
}

Outputs FullLike(const Call& call) {
  const TensorType like = call.TypeOf(call.tensor(0));
  return Filled(call, like.dims, 2, like.type, call.number(1));
}

Outputs NewFull(const Call& call) {
  return Filled(call, call.ints(1), 3, call.TypeOf(call.tensor(0)).type, call.number(2));
}

Outputs ScalarTensor(const Call& call) {
  return Filled(call, {}, 1, TypeOfNumber(call.at(0)), call.number(0));
}

Outputs Counted(const Call& call, double start, double end, double step, size_t type,
                v1::DataType otherwise) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType chosen, call.type(type, otherwise));
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0 && count <= static_cast<double>(program::kMaxElements)))
    return call.Refuse(absl::StrCat("no numbers lead from ", start, " to ", end, " by ", step));
  const v1::DataType counted = program::IsFloat(chosen) ? v1::FLOAT32 : v1::INT32;
  const Term places = call.term(call.graph().Iota({counted, {static_cast<int64_t>(count)}}, 0));
  const Term numbers = places * step + places.Number(start);
  return Tensors{call.graph().Cast(numbers, chosen)};
}

Outputs Arange(const Call& call) {
  return Counted(call, 0, call.number(0), 1, 1, TypeOfNumber(call.at(0)));
}

Outputs ArangeStart(const Call& call) {
  const v1::DataType type = PromotedType(TypeOfNumber(call.at(0)), TypeOfNumber(call.at(1)));
  return Counted(call, call.number(0), call.number(1), 1, 2, type);
}

Outputs ArangeStep(const Call& call) {
  const v1::DataType type =
      PromotedType(PromotedType(TypeOfNumber(call.at(0)), TypeOfNumber(call.at(1))),
                   std::holds_alternative<double>(call.at(2)) ? v1::FLOAT32 : v1::INT32);
  return Counted(call, call.number(0), call.number(1), call.number(2), 3, type);
}

// Numbers that are known now, in a type of the device.
Outputs Listed(const Call& call, const std::vector<double>& numbers, v1::DataType type,
               const Dims& dims) {
  const auto constant = [&](v1::DataType stored, const auto& elements) {
    std::string bytes(reinterpret_cast<const char*>(elements.data()),
                      sizeof(elements[0]) * elements.size());
    const Tensor list = call.graph().Constant({stored, dims}, std::move(bytes));
    return Tensors{call.graph().Cast(list, type)};
  };
  if (program::IsFloat(type))
    return constant(v1::FLOAT32, std::vector<float>(numbers.begin(), numbers.end()));
  std::vector<int32_t> whole;
  for (double number : numbers) {
    if (!(std::abs(number) < 2147483648.0))
      return call.Refuse(absl::StrCat(number, " is not a number of 32 bits"));
    whole.push_back(static_cast<int32_t>(number));
  }
  return constant(v1::INT32, whole);
}

// (start, end, count): from both ends, so that both are exact.
absl::StatusOr<std::vector<double>> Spaced(const Call& call) {
  const double start = call.number(0), end = call.number(1);
  const int64_t count = call.integer(2);
  if (count < 0 || count > program::kMaxElements)
    return call.Refuse(absl::StrCat("count ", count, " must be 0 to ", program::kMaxElements));
  const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0;
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(i < (count + 1) / 2 ? start + step * static_cast<double>(i)
                                          : end - step * static_cast<double>(count - 1 - i));
  }
  return numbers;
}

Outputs Linspace(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(3, v1::FLOAT32));
  VPOD_ASSIGN_OR_RETURN(const std::vector<double> numbers, Spaced(call));
  return Listed(call, numbers, type, {static_cast<int64_t>(numbers.size())});
}

// (start, end, count, base): powers.
Outputs Logspace(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(4, v1::FLOAT32));
  VPOD_ASSIGN_OR_RETURN(std::vector<double> numbers, Spaced(call));
  for (double& number : numbers) number = std::pow(call.number(3), number);
  return Listed(call, numbers, type, {static_cast<int64_t>(numbers.size())});
}

// (start, end, step), with the end.
Outputs Range(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(3, v1::FLOAT32));
  const double start = call.number(0), step = call.number(2);
  const double count = std::floor((call.number(1) - start) / step) + 1;
  if (!(count >= 1 && count <= static_cast<double>(program::kMaxElements))) {
    return call.Refuse(
        absl::StrCat("no numbers lead from ", start, " to ", call.number(1), " by ", step));
  }
  std::vector<double> numbers;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
    numbers.push_back(start + step * static_cast<double>(i));
  return Listed(call, numbers, type, {static_cast<int64_t>(numbers.size())});
}

// (rows, columns, offset): rows and columns of the elements of a triangle, [2, elements].
template <bool kUpper>
Outputs TriangleIndices(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(3, v1::INT32));
  const int64_t rows = call.integer(0), columns = call.integer(1);
  constexpr int64_t kMost = program::kMaxElements;
  if (rows < 0 || columns < 0 || std::max(rows, columns) > kMost)
    return call.Refuse(absl::StrCat("numbers of rows and columns must be 0 to ", kMost));
  const int64_t offset = std::clamp(call.integer(2), -kMost, kMost);
  std::vector<double> of_rows, of_columns;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t diagonal = std::clamp<int64_t>(row + offset + (kUpper ? 0 : 1), 0, columns);
    for (int64_t column = kUpper ? diagonal : 0; column < (kUpper ? columns : diagonal); ++column) {
      of_rows.push_back(static_cast<double>(row));
      of_columns.push_back(static_cast<double>(column));
    }
  }
  const auto count = static_cast<int64_t>(of_rows.size());
  of_rows.insert(of_rows.end(), of_columns.begin(), of_columns.end());
  return Listed(call, of_rows, type, {2, count});
}

Outputs ToCopy(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType type, call.type(1, call.TypeOf(call.tensor(0)).type));
  return Tensors{call.graph().Cast(call.tensor(0), type)};
}

Outputs Copy(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  return Tensors{call.graph().Expand(call.graph().Cast(call.tensor(1), type.type), type.dims)};
}

Outputs Zero(const Call& call) {
  return Tensors{call.graph().Constant(call.TypeOf(call.tensor(0)), 0)};
}

Outputs Fill(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  if (!std::holds_alternative<Tensor>(call.at(1)))
    return Tensors{call.graph().Constant(type, call.number(1))};
  return Copy(call);
}

}  // namespace

std::vector<Row> CreationRows() {
  return {
      {"empty.memory_format", WithOptions("ints"), OfSize<0>},
      {"zeros.default", WithOptions("ints"), OfSize<0>},
      {"ones.default", WithOptions("ints"), OfSize<1>},
      {"full.default", WithOptions("ints, number"), Full},
      {"empty_strided.default", WithOptions("ints, ints"), EmptyStrided},
      {"empty_like.default", WithOptions("tensor"), Like<0>},
      {"zeros_like.default", WithOptions("tensor"), Like<0>},
      {"ones_like.default", WithOptions("tensor"), Like<1>},
      {"full_like.default", WithOptions("tensor, number"), FullLike},
      {"new_empty.default", WithOptions("tensor, ints"), New<0>},
      {"new_zeros.default", WithOptions("tensor, ints"), New<0>},
      {"new_ones.default", WithOptions("tensor, ints"), New<1>},
      {"new_full.default", WithOptions("tensor, ints, number"), NewFull},
      {"new_empty_strided.default", WithOptions("tensor, ints, ints"), NewEmptyStrided},
      {"scalar_tensor.default", WithOptions("number"), ScalarTensor},
      {"arange.default", WithOptions("number"), Arange},
      {"arange.start", WithOptions("number, number"), ArangeStart},
      {"arange.start_step", WithOptions("number, number, number=1"), ArangeStep},
      {"linspace.default", WithOptions("number, number, int"), Linspace},
      {"logspace.default", WithOptions("number, number, int, number=10"), Logspace},
      {"range.step", WithOptions("number, number, number=1"), Range},
      {"tril_indices.default", WithOptions("int, int, int=0"), TriangleIndices<false>},
      {"triu_indices.default", WithOptions("int, int, int=0"), TriangleIndices<true>},
      {"_to_copy.default", WithOptions("tensor") + ", any?=None", ToCopy},  // non_blocking
      {"copy_.default", "tensor, tensor, bool=false", Copy},
      {"zero_.default", "tensor", Zero},
      {"fill_.Scalar", "tensor, number", Fill},
      {"fill_.Tensor", "tensor, operand", Fill},
      {"fill.Scalar", "tensor, number", Fill},
      {"fill.Tensor", "tensor, operand", Fill},
  };
}

}  // namespace vpod::aten
