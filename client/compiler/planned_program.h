// A program that `vpod plan` runs to have what it compiles: without a POD, up to its first session.
#pragma once

#include "absl/status/status.h"
#include "client/compiler/compiler.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// Names the directory in which the executable is to be left.
inline constexpr char kPlanDirectoryVariable[] = "VPOD_PLAN_DIRECTORY";

// Whether this process is such a program. Then devices are stand-ins.
bool IsPlannedProgram();

// How such a program is compiled: for several replicas, since gradients of one need no collectives,
// and even if it does not fit.
CompileOptions OptionsForPlan(CompileOptions options);

// Leaves the executable and ends the process with status 0; returns only the error that kept it
// from that. Threads of the program are not waited for.
absl::Status LeaveForPlan(const program::Executable& executable);

}  // namespace vpod::compiler
