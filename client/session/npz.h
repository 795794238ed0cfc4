// Arrays of float32 in NumPy's .npz format: numpy.load reads what WriteNpz writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/program/tensor_type.h"

namespace vpod::session {

struct FloatArray {
  program::Dims dims;
  std::vector<float> values;  // row-major
};
using FloatArrays = std::map<std::string, FloatArray>;  // by name

// Replaces the file, whole or not at all.
absl::Status WriteNpz(const std::string& path, const FloatArrays& arrays);

// Arrays of little-endian float32 in row-major order. NotFound: no such file. InvalidArgument names
// the file and the array that is something else. At most `limit_bytes` of values are read.
absl::StatusOr<FloatArrays> ReadNpz(const std::string& path, uint64_t limit_bytes = 8ull << 30);

}  // namespace vpod::session
