#include "device/program/tensor_type.h"

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
      return 2;
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
    case v1::INT32:
      return "int32";
    case v1::UINT32:
      return "uint32";
    case v1::UINT8:
      return "uint8";
    case v1::BOOL:
      return "bool";
    default:
      return "unknown";
  }
}

bool IsFloat(v1::DataType type) { return type == v1::FLOAT32 || type == v1::FLOAT16; }

absl::Status Check(const TensorType& type) {
  if (SizeOf(type.type) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("unknown element type ", type.type));
  }
  if (type.rank() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", type.rank(), " exceeds the largest, ", kMaxRank));
  }
  int64_t elements = 1;
  for (int64_t dim : type.dims) {
    if (dim < 1 || dim > kMaxElements || elements * dim > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("dimensions [", absl::StrJoin(type.dims, ","),
                                                     "] are outside 1 to ", kMaxElements,
                                                     " elements"));
    }
    elements *= dim;
  }
  return absl::OkStatus();
}

TensorType TypeOf(const v1::Tensor& tensor) {
  return {tensor.type(), Dims(tensor.dims().begin(), tensor.dims().end())};
}

TensorType TypeOf(const v1::Stream& stream) {
  return {stream.type(), Dims(stream.dims().begin(), stream.dims().end())};
}

uint64_t ArenaBytes(const v1::Tensor& tensor) {
  const TensorType type = TypeOf(tensor);
  return tensor.wide_accumulator() ? static_cast<uint64_t>(type.elements()) * 8 : type.bytes();
}

}  // namespace vpod::program
