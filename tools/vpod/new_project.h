// `vpod new`: a directory with a first program and all that builds it outside this tree.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace vpod::tools {

// Makes the directory and its files; its last part names the program. InvalidArgument if that
// cannot name a program; AlreadyExists or Unavailable if the directory or a file cannot be written.
// The messages name it, and nothing is left behind.
absl::Status WriteProject(const std::string& directory, bool python);

}  // namespace vpod::tools
