#include "client/poptorch/types.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/session/narrowing.h"

namespace vpod::poptorch {
namespace {

namespace v1 = program::v1;

// Rows of c10::ScalarType.
struct Row {
  int host;
  size_t host_bytes;
  v1::DataType device;
};
constexpr int kInt64 = 4, kFloat64 = 7;
constexpr Row kTypes[] = {{0, 1, v1::UINT8},   {1, 1, v1::INT8},           {2, 2, v1::INT16},
                          {3, 4, v1::INT32},   {kInt64, 8, v1::INT32},     {5, 2, v1::FLOAT16},
                          {6, 4, v1::FLOAT32}, {kFloat64, 8, v1::FLOAT32}, {11, 1, v1::BOOL}};

const Row* Find(int host) {
  for (const Row& row : kTypes) {
    if (row.host == host) return &row;
  }
  return nullptr;
}

template <class T>
absl::Span<const T> As(absl::string_view bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class From, class To>
void Widen(absl::string_view from, void* to) {
  auto* out = static_cast<To*>(to);
  for (From value : As<From>(from)) *out++ = static_cast<To>(value);
}

}  // namespace

absl::StatusOr<program::TensorType> DeviceType(const TapeValue& value) {
  const Row* row = Find(value.type);
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no device has elements of PyTorch's type ", value.type,
                     ", must be bool, uint8, int8, int16, int32, int64, float16, float32 or "
                     "float64"));
  }
  return program::TensorType{row->device, value.dims};
}

int HostType(v1::DataType type) {
  for (const Row& row : kTypes) {
    if (row.device == type && row.host != kInt64 && row.host != kFloat64) return row.host;
  }
  return -1;
}

size_t HostElementBytes(int type) {
  const Row* row = Find(type);
  return row == nullptr ? 0 : row->host_bytes;
}

size_t HostBytes(const TapeValue& value) {
  size_t bytes = HostElementBytes(value.type);
  for (int64_t dim : value.dims) bytes *= static_cast<size_t>(dim);
  return bytes;
}

absl::Status ToDevice(absl::string_view what, int host_type, absl::string_view from,
                      std::byte* to) {
  if (host_type == kInt64) return session::Narrow(what, As<int64_t>(from), v1::INT32, to);
  if (host_type == kFloat64) return session::Narrow(what, As<double>(from), v1::FLOAT32, to);
  std::memcpy(to, from.data(), from.size());
  return absl::OkStatus();
}

void ToHost(int host_type, absl::string_view from, void* to) {
  if (host_type == kInt64) {
    Widen<int32_t, int64_t>(from, to);
  } else if (host_type == kFloat64) {
    Widen<float, double>(from, to);
  } else {
    std::memcpy(to, from.data(), from.size());
  }
}

}  // namespace vpod::poptorch
