// The end of a program that `vpod plan` runs (client/compiler/planned_program.h).
#pragma once

#include "absl/status/status.h"
#include "device/program/executable.h"

namespace vpod::session {

// Leaves the executable for `vpod plan`. Cancelled: it is there, and the program, which gets no
// session, is to end; otherwise what kept it from being written.
absl::Status LeaveForPlan(const program::Executable& executable);

// The same for a program that takes Cancelled for an error and reports it while it ends. Nobody is
// to see an error where a plan succeeds: what the process writes to stderr from then on is lost.
absl::Status LeaveForPlanQuietly(const program::Executable& executable);

}  // namespace vpod::session
