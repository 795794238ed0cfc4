// vpod plan: what runs of compiled executables take on PODs of any size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/program/executable.h"
#include "tools/vpod/plan_figures.h"

namespace vpod::tools {

// The executable in a file (client/compiler/executable_file.h). DataLoss: the file is damaged or
// holds something else; FailedPrecondition: the path is a directory or a device. The messages name
// the path.
absl::StatusOr<std::shared_ptr<const program::Executable>> ReadExecutable(const std::string& path);

// The executable that a POD of so many IPUs runs; all have the same programs.
using ExecutableFor =
    std::function<absl::StatusOr<std::shared_ptr<const program::Executable>>(uint32_t pod)>;

// A plan of a run of each program for each POD of each type of machine. The efficiency is the runs
// of a replica in some time, compared with those on the smallest of the PODs of its type.
// `explain`: also the time of each IPU of a replica, and why the executable does not fit. PODs that
// the executable is not for are left out and noted; InvalidArgument if it is for none.
absl::StatusOr<PlanOutput> ExecutablePlan(const ExecutableFor& executable_for,
                                          const Systems& systems, PlanFormat format, bool explain);

}  // namespace vpod::tools
