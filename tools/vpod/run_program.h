// Runs another program to its end.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::tools {

// Returns what the program, a path or a name in PATH, writes to stdout. Unavailable: it cannot be
// started; FailedPrecondition: it failed, with the last line that it wrote to stderr.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& command);

}  // namespace vpod::tools
