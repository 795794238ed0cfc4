// Host data of 64 bits for tensors of a device, which has types of 32 bits at most. The rule is in
// docs/fidelity.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "device/program/tensor_type.h"

namespace vpod::session {

// Writes the values to `to` as elements of an integer type or BOOL. InvalidArgument names what they
// are for, such as "stream 'labels'", the first value that the type does not have, its index and
// the range, or a float type; then nothing was written.
absl::Status Narrow(absl::string_view what, absl::Span<const int64_t> values,
                    program::v1::DataType type, std::byte* to);

// Writes the values to `to` as elements of a float type: each rounded once to the nearest, ties to
// even; beyond the largest infinity, and NaN stays NaN. InvalidArgument names an integer type.
absl::Status Narrow(absl::string_view what, absl::Span<const double> values,
                    program::v1::DataType type, std::byte* to);

}  // namespace vpod::session
