// Configuration files of --import-config and --export-config: a JSON object with option names
// without their dashes as keys, and strings or arrays of strings as values.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vpod::launch {

// Values of options by name, in the order in which they were given.
using GivenOptions = std::map<std::string, std::vector<std::string>>;

// Adds what the file says to `given`, which wins: an option there, or one that excludes it there
// (--host and --hostfile, --numa-aware and --process-placement), hides the file's. InvalidArgument:
// a name or value in it that is none of an option; FailedPrecondition: the file cannot be read.
absl::Status ImportConfig(const std::string& path,
                          const std::function<bool(const std::string&)>& is_option,
                          GivenOptions& given);

// InvalidArgument: the file exists and `overwrite` is false; FailedPrecondition: it cannot be
// written.
absl::Status ExportConfig(const std::string& path, bool overwrite, const GivenOptions& given);

}  // namespace vpod::launch
