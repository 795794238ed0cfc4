// A user's program that is run to be planned: without a POD, up to its first session.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/program/executable.h"

namespace vpod::tools {

// Runs a command, whose first word is looked up in PATH, and reads the executable that its first
// session would have loaded, compiled for this number of replicas if it is given. With `explain`,
// the executable has advice beside it if it does not fit, which takes several compilations. The
// program's output goes to stderr. A program that does not end by itself then is told to (SIGTERM).
// SIGINT, SIGTERM and SIGHUP are passed on to it, and end this process when it has ended. NotFound:
// it cannot be started; FailedPrecondition: it ended without a session; the messages say how.
absl::StatusOr<std::shared_ptr<const program::Executable>> CompileByProgram(
    const std::vector<std::string>& command, std::optional<uint32_t> replicas = std::nullopt,
    bool explain = false);

}  // namespace vpod::tools
