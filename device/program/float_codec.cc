#include "device/program/float_codec.h"

#include <cstring>

namespace vpod::program {

namespace {

template <class T>
void Put(absl::Span<const float> values, std::string& bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

std::string EncodeFloats(absl::Span<const float> values, v1::DataType type) {
  std::string bytes(values.size() * SizeOf(type), '\0');
  switch (type) {
    case v1::FLOAT32:
      Put<float>(values, bytes);
      break;
    case v1::FLOAT16:
      Put<_Float16>(values, bytes);
      break;
    case v1::INT8:
      Put<int8_t>(values, bytes);
      break;
    case v1::INT16:
      Put<int16_t>(values, bytes);
      break;
    case v1::INT32:
      Put<int32_t>(values, bytes);
      break;
    case v1::UINT16:
      Put<uint16_t>(values, bytes);
      break;
    case v1::UINT32:
      Put<uint32_t>(values, bytes);
      break;
    default:
      Put<uint8_t>(values, bytes);
  }
  return bytes;
}

std::vector<float> DecodeFloats(absl::string_view bytes, v1::DataType type) {
  std::vector<float> values(bytes.size() / SizeOf(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == v1::FLOAT16) {
      _Float16 half;
      std::memcpy(&half, bytes.data() + i * sizeof(half), sizeof(half));
      values[i] = static_cast<float>(half);
    } else {
      std::memcpy(&values[i], bytes.data() + i * sizeof(float), sizeof(float));
    }
  }
  return values;
}

}  // namespace vpod::program
