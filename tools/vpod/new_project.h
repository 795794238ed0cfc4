// `vpod new`: a directory with a first program and all that builds it outside this tree.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace vpod::tools {

// Makes the directory, after whose last part the program is called, and its files. InvalidArgument:
// it is no name for a program; AlreadyExists, Unavailable: it cannot be made, or the disk is full.
// The messages name it, and nothing is left behind.
absl::Status WriteProject(const std::string& directory, bool python);

}  // namespace vpod::tools
