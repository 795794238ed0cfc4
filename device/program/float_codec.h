// Float tensors as the bytes that devices hold.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "device/program/tensor_type.h"

namespace vpod::program {

// `type` is FLOAT32 or FLOAT16; values are rounded to it.
std::string EncodeFloats(absl::Span<const float> values, v1::DataType type);
std::vector<float> DecodeFloats(absl::string_view bytes, v1::DataType type);

}  // namespace vpod::program
