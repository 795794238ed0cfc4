#include "device/program/tensor_type.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vpod::program {

int64_t TensorType::elements() const {
  int64_t n = 1;
  for (int64_t dim : dims) n *= dim;
  return n;
}

uint64_t TensorType::bytes() const { return static_cast<uint64_t>(elements()) * SizeOf(type); }

std::string TensorType::ToString() const {
  return absl::StrCat(Name(type), "[", absl::StrJoin(dims, ","), "]");
}

uint64_t SizeOf(v1::DataType type) {
  switch (type) {
    case v1::FLOAT32:
    case v1::INT32:
    case v1::UINT32:
      return 4;
    case v1::FLOAT16:
    case v1::INT16:
    case v1::UINT16:
      return 2;
    case v1::INT8:
    case v1::UINT8:
    case v1::BOOL:
      return 1;
    default:
      return 0;
  }
}

absl::string_view Name(v1::DataType type) {
  switch (type) {
    case v1::FLOAT32:
      return "float32";
    case v1::FLOAT16:
      return "float16";
    case v1::INT8:
      return "int8";
    case v1::INT16:
      return "int16";
    case v1::INT32:
      return "int32";
    case v1::UINT32:
      return "uint32";
    case v1::UINT8:
      return "uint8";
    case v1::UINT16:
      return "uint16";
    case v1::BOOL:
      return "bool";
    default:
      return "unknown";
  }
}

bool IsFloat(v1::DataType type) { return type == v1::FLOAT32 || type == v1::FLOAT16; }

bool IsInteger(v1::DataType type) { return SizeOf(type) > 0 && !IsFloat(type) && type != v1::BOOL; }

bool IsSigned(v1::DataType type) {
  return type == v1::INT8 || type == v1::INT16 || type == v1::INT32;
}

absl::Status CheckValue(double value, v1::DataType type) {
  if (IsFloat(type)) return absl::OkStatus();
  const double count = type == v1::BOOL ? 2 : std::ldexp(1.0, static_cast<int>(8 * SizeOf(type)));
  const double low = IsSigned(type) ? -count / 2 : 0;
  if (value >= low && value < low + count && value == std::trunc(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("value ", value, " is not of type ", Name(type)));
}

absl::Status Check(const TensorType& type) {
  if (SizeOf(type.type) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown element type ", type.type, ", must be 1 to ", v1::DataType_MAX));
  }
  if (type.rank() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", type.rank(), " is outside 0 to ", kMaxRank));
  }
  int64_t elements = 1;  // if there were no dimension of 0: strides fit, too
  for (int64_t dim : type.dims) {
    if (dim < 0 || dim > kMaxElements || elements * std::max<int64_t>(dim, 1) > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("dimensions [", absl::StrJoin(type.dims, ","),
                                                     "] are outside 0 to ", kMaxElements,
                                                     " elements"));
    }
    elements *= std::max<int64_t>(dim, 1);
  }
  return absl::OkStatus();
}

TensorType TypeOf(const v1::Tensor& tensor) {
  return {tensor.type(), Dims(tensor.dims().begin(), tensor.dims().end())};
}

TensorType TypeOf(const v1::Stream& stream) {
  return {stream.type(), Dims(stream.dims().begin(), stream.dims().end())};
}
TensorType TypeOf(const v1::RemoteBuffer& buffer) {
  return {buffer.type(), Dims(buffer.dims().begin(), buffer.dims().end())};
}

Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

Dims ChannelsLastStrides(const Dims& dims) {
  if (dims.size() < 3) return RowMajorStrides(dims);
  Dims strides(dims.size());
  int64_t stride = dims[1];
  strides[1] = 1;
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return strides;
}

Dims OutputsLastStrides(const Dims& dims) {
  if (dims.size() < 3) return RowMajorStrides(dims);
  Dims strides(dims.size());
  strides[0] = 1;
  strides[1] = dims[0];
  int64_t stride = dims[0] * dims[1];
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

Dims StridesOf(const v1::Tensor& tensor) {
  if (!tensor.strides().empty()) return {tensor.strides().begin(), tensor.strides().end()};
  return RowMajorStrides({tensor.dims().begin(), tensor.dims().end()});
}

bool LiesAs(const v1::Tensor& tensor, const Dims& strides) {
  if (TypeOf(tensor).empty()) return true;
  const Dims own = StridesOf(tensor);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] != strides[i] && tensor.dims(static_cast<int>(i)) != 1) return false;
  }
  return true;
}

bool ElementsLieApart(const v1::Tensor& tensor) {
  if (tensor.strides().empty()) return true;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, dimension
  for (int i = 0; i < tensor.dims_size(); ++i) {
    if (tensor.dims(i) > 1) axes.emplace_back(tensor.strides(i), tensor.dims(i));
  }
  std::sort(axes.begin(), axes.end());
  int64_t span = 0;
  for (const auto& [stride, dim] : axes) {
    if (stride <= span) return false;
    span += stride * (dim - 1);
  }
  return true;
}

namespace {

// Elements from the first to the last of a tensor whose type and strides are in order.
int64_t Span(const v1::Tensor& tensor) {
  if (TypeOf(tensor).empty()) return 0;
  int64_t span = 1;
  const Dims strides = StridesOf(tensor);
  for (size_t i = 0; i < strides.size(); ++i)
    span += (tensor.dims(static_cast<int>(i)) - 1) * strides[i];
  return span;
}

}  // namespace

bool IsDense(const v1::Tensor& tensor) {
  return ElementsLieApart(tensor) && Span(tensor) == TypeOf(tensor).elements();
}

absl::Status CheckStrides(const v1::Tensor& tensor) {
  if (tensor.strides().empty()) return absl::OkStatus();
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("strides [",
                                                   absl::StrJoin(tensor.strides(), ","), "] of ",
                                                   TypeOf(tensor).ToString(), " ", why));
  };
  if (tensor.strides_size() != tensor.dims_size()) return wrong("are not one for each dimension");
  if (TypeOf(tensor).empty()) return wrong("say nothing of a tensor without elements");
  int64_t span = 1;
  for (int i = 0; i < tensor.dims_size(); ++i) {
    const int64_t stride = tensor.strides(i);
    if (stride < 0 || stride > kMaxElements)
      return wrong(absl::StrCat("are outside 0 to ", kMaxElements));
    span += (tensor.dims(i) - 1) *
            stride;  // both factors are at most 2^31, and the sum at most 8 times that
    if (span > kMaxElements)
      return wrong(absl::StrCat("span more than ", kMaxElements, " elements"));
  }
  const Dims dims(tensor.dims().begin(), tensor.dims().end());
  if (StridesOf(tensor) == RowMajorStrides(dims)) return wrong("are those of a row-major tensor");
  return absl::OkStatus();
}

uint64_t ArenaBytes(const v1::Tensor& tensor) {
  const auto elements = static_cast<uint64_t>(Span(tensor));
  return elements * (tensor.wide_accumulator() ? 8 : SizeOf(tensor.type()));
}

}  // namespace vpod::program
