// Tensors as the bytes that devices hold, from and to float32.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// Values are rounded to a float type; integer types and BOOL must have them (CheckValue).
std::string EncodeFloats(absl::Span<const float> values, v1::DataType type);
// The same of doubles, which have all integers of 32 bits.
std::string EncodeDoubles(absl::Span<const double> values, v1::DataType type);
// Integers above 2^24 are rounded.
std::vector<float> DecodeFloats(absl::string_view bytes, v1::DataType type);

}  // namespace vpod::program
