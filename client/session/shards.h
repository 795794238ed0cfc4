// A variable whose parts replicas share out among them, between its parts and what the host sees.
#pragma once

#include <string>

#include "device/program/executable.h"

namespace vpod::session {

// The bytes of the whole, row-major, of the parts one after the other; and the other way. Either
// has the bytes of `variable.whole`.
std::string JoinShards(const program::HostTensor& variable, std::string parts);
std::string CutShards(const program::HostTensor& variable, std::string whole);

}  // namespace vpod::session
