// Arrays in NumPy's .npz format: numpy.load reads what WriteNpz writes.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/program/tensor_type.h"

namespace vpod::session {

struct Array {
  program::TensorType type;
  std::string bytes;  // of the elements, row-major
};
using Arrays = std::map<std::string, Array>;  // by name

// FLOAT32.
Array FloatArray(program::Dims dims, absl::Span<const float> values);

// Replaces the file, whole or not at all, and keeps its mode; of a link, the file that it leads to.
// Until then it is beside it under an unfinished name (device/base/unfinished_file.h), and what a
// process that was killed left under such a name is removed. FailedPrecondition, NotFound: the path
// cannot be written to (base::OutputPath); Unavailable: a failure of the system.
absl::Status WriteNpz(const std::string& path, const Arrays& arrays);

// Arrays of the element types that tensors have, little-endian and in row-major order. NotFound: no
// such file. InvalidArgument names the file and the array that is something else. At most
// `limit_bytes` of values are read.
absl::StatusOr<Arrays> ReadNpz(const std::string& path, uint64_t limit_bytes = 8ull << 30);

}  // namespace vpod::session
