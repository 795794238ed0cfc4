// What a tool that failed ends with.
#pragma once

#include "absl/status/status.h"

namespace vpod::base {

// 0 done; 2 wrong usage: InvalidArgument; 1 any other failure. What somebody wrote is wrong usage,
// on the command line or in a file of settings. What the world lacks is a failure, such as a file
// that is not there or cannot be read (base::ReadNamedFile).
inline int ExitCode(const absl::Status& status) {
  return status.ok() ? 0 : absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace vpod::base
