#include "device/program/float_codec.h"

#include <cstring>

namespace vpod::program {
namespace {

template <class T, class Given>
void Put(absl::Span<const Given> values, std::string& bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T>
void Get(absl::string_view bytes, std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
}

// Calls `f` with an element of the type; BOOL is a uint8_t.
template <class F>
void WithElement(v1::DataType type, const F& f) {
  switch (type) {
    case v1::FLOAT32:
      return f(float{});
    case v1::FLOAT16:
      return f(_Float16{});
    case v1::INT8:
      return f(int8_t{});
    case v1::INT16:
      return f(int16_t{});
    case v1::INT32:
      return f(int32_t{});
    case v1::UINT16:
      return f(uint16_t{});
    case v1::UINT32:
      return f(uint32_t{});
    default:
      return f(uint8_t{});
  }
}

}  // namespace

std::string EncodeFloats(absl::Span<const float> values, v1::DataType type) {
  if (type == v1::FLOAT32)  // these bytes already
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  std::string bytes(values.size() * SizeOf(type), '\0');
  WithElement(type, [&](auto element) { Put<decltype(element)>(values, bytes); });
  return bytes;
}

std::string EncodeDoubles(absl::Span<const double> values, v1::DataType type) {
  std::string bytes(values.size() * SizeOf(type), '\0');
  WithElement(type, [&](auto element) { Put<decltype(element)>(values, bytes); });
  return bytes;
}

std::vector<float> DecodeFloats(absl::string_view bytes, v1::DataType type) {
  std::vector<float> values(bytes.size() / SizeOf(type));
  WithElement(type, [&](auto element) { Get<decltype(element)>(bytes, values); });
  return values;
}

}  // namespace vpod::program
