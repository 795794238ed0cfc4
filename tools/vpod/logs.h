// `vpod logs`: what the daemons of a POD have written.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

// Prints the last lines of each log of a daemon (server, agent, or empty for all), with its name
// before each line. NotFound: there is none.
absl::Status PrintLogs(const Pod& pod, const std::string& daemon, size_t lines);
// The same, and then lines as they are written, until the POD's directory is removed or nobody
// reads on.
absl::Status FollowLogs(const Pod& pod, const std::string& daemon, size_t lines);

}  // namespace vpod::tools
