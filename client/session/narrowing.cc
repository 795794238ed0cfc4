#include "client/session/narrowing.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace vpod::session {
namespace {

namespace v1 = program::v1;

absl::Status WrongType(absl::string_view what, v1::DataType type, absl::string_view given,
                       absl::string_view taken) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is of type ", program::Name(type), "; ",
                                                 given, " values are given, which ", taken,
                                                 " types take"));
}

template <class To, class From>
void Store(absl::Span<const From> values, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const To value = static_cast<To>(values[i]);
    std::memcpy(to + i * sizeof(To), &value, sizeof(To));
  }
}

template <class To>
absl::Status StoreChecked(absl::string_view what, absl::Span<const int64_t> values, std::byte* to,
                          int64_t low = std::numeric_limits<To>::min(),
                          int64_t high = std::numeric_limits<To>::max()) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= low && values[i] <= high) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, ": value ", values[i], " at index ", i,
                                                   " is outside ", low, " to ", high));
  }
  Store<To>(values, to);
  return absl::OkStatus();
}

}  // namespace

absl::Status Narrow(absl::string_view what, absl::Span<const int64_t> values, v1::DataType type,
                    std::byte* to) {
  switch (type) {
    case v1::INT8:
      return StoreChecked<int8_t>(what, values, to);
    case v1::INT16:
      return StoreChecked<int16_t>(what, values, to);
    case v1::INT32:
      return StoreChecked<int32_t>(what, values, to);
    case v1::UINT8:
      return StoreChecked<uint8_t>(what, values, to);
    case v1::UINT16:
      return StoreChecked<uint16_t>(what, values, to);
    case v1::UINT32:
      return StoreChecked<uint32_t>(what, values, to);
    case v1::BOOL:
      return StoreChecked<uint8_t>(what, values, to, 0, 1);
    default:
      return WrongType(what, type, "int64", "integer");
  }
}

absl::Status Narrow(absl::string_view what, absl::Span<const double> values, v1::DataType type,
                    std::byte* to) {
  switch (type) {
    case v1::FLOAT32:
      Store<float>(values, to);
      return absl::OkStatus();
    case v1::FLOAT16:
      Store<_Float16>(values, to);
      return absl::OkStatus();
    default:
      return WrongType(what, type, "float64", "float");
  }
}

}  // namespace vpod::session
