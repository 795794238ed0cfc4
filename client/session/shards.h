// A variable whose parts replicas share out among them, between its parts and what the host sees.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "device/program/executable.h"

namespace vpod::session {

// The bytes of the whole, row-major, of the parts one after the other; and the other way.
std::string JoinShards(const program::HostTensor& variable, absl::string_view parts);
std::string CutShards(const program::HostTensor& variable, absl::string_view whole);

}  // namespace vpod::session
