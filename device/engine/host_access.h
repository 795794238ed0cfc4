// The bytes of a variable as the host has them, row-major, whatever its layout on the IPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "device/program/executable.h"

namespace vpod::engine {

// Bytes [offset, offset + bytes) of the host's form of a tensor that begins at `base`. The range
// lies within the tensor.
std::string ReadHostBytes(const program::HostTensor& tensor, const std::byte* base, uint64_t offset,
                          uint64_t bytes);
void WriteHostBytes(const program::HostTensor& tensor, std::byte* base, uint64_t offset,
                    absl::string_view data);

}  // namespace vpod::engine
