// Types of C++ with which a program reads and writes the elements of a stream.
#pragma once

#include <concepts>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "device/program/tensor_type.h"

namespace vpod::session {

class ElementType {
 public:
  // Takes all streams, as bytes.
  static constexpr ElementType Any() { return {program::v1::DATA_TYPE_UNSPECIFIED, true}; }
  // Does not compile for types that no stream has.
  template <class T>
  static constexpr ElementType Of() {
    namespace v1 = program::v1;
    if constexpr (std::same_as<T, float>) {
      return {v1::FLOAT32, false};
    } else if constexpr (std::same_as<T, _Float16>) {
      return {v1::FLOAT16, false};
    } else if constexpr (std::same_as<T, int32_t>) {
      return {v1::INT32, false};
    } else if constexpr (std::same_as<T, int16_t>) {
      return {v1::INT16, false};
    } else if constexpr (std::same_as<T, int8_t>) {
      return {v1::INT8, false};
    } else if constexpr (std::same_as<T, bool>) {
      return {v1::BOOL, false};
    } else if constexpr (std::same_as<T, uint32_t>) {
      return {v1::UINT32, true};
    } else if constexpr (std::same_as<T, uint16_t>) {
      return {v1::UINT16, true};
    } else {
      static_assert(std::same_as<T, uint8_t>, "no stream has elements of this type");
      return {v1::UINT8, true};
    }
  }

  // Whether a stream of these elements is one of this type. Unsigned integers also have the bits of
  // other types of their size.
  bool Reads(program::v1::DataType stream) const {
    if (stream == type_ || type_ == program::v1::DATA_TYPE_UNSPECIFIED) return true;
    return bits_ && program::SizeOf(stream) == program::SizeOf(type_);
  }
  // "float32"
  absl::string_view name() const { return program::Name(type_); }

 private:
  constexpr ElementType(program::v1::DataType type, bool bits) : type_(type), bits_(bits) {}

  program::v1::DataType type_;
  bool bits_;
};

}  // namespace vpod::session
