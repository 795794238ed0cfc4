// Files that a person names for output.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace vpod::popvision {

// Puts a file with what `write` writes in the place of `path`: whole or not at all, also when the
// power fails. Unavailable names the file.
absl::Status WriteOutput(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace vpod::popvision
