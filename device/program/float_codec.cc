#include "device/program/float_codec.h"

#include <cstring>

namespace vpod::program {

std::string EncodeFloats(absl::Span<const float> values, v1::DataType type) {
  std::string bytes(values.size() * SizeOf(type), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == v1::FLOAT16) {
      const auto half = static_cast<_Float16>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(half), &half, sizeof(half));
    } else {
      std::memcpy(bytes.data() + i * sizeof(float), &values[i], sizeof(float));
    }
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
