// vpod plan: what runs of compiled executables take on PODs of any size.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/program/executable.h"
#include "tools/vpod/plan_figures.h"

namespace vpod::tools {

// The executable in a file (client/compiler/executable_file.h). InvalidArgument: it is none; the
// message names the file.
absl::StatusOr<std::shared_ptr<const program::Executable>> ReadExecutable(const std::string& path);

// A plan of a run of each program for each POD, as a text that ends with a newline. The efficiency
// is the runs of a replica in some time, compared with those on the smallest of the PODs.
// `explain`: also the time of each IPU of a replica, and why the executable does not fit.
absl::StatusOr<std::string> ExecutablePlanText(const program::Executable& executable,
                                               const std::vector<uint32_t>& pods,
                                               const std::string& machine_type, PlanFormat format,
                                               bool explain);

}  // namespace vpod::tools
