// Traces in the format of Chrome's trace viewer, which Perfetto opens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/pva/pva.h"

namespace vpod::popvision {

// Writes the steps of a run: a track for each IPU, times in microseconds. Unavailable names the
// file; one that was there is replaced when all is written.
absl::Status WriteChromeTrace(const pva::Report& report, const std::string& path);

}  // namespace vpod::popvision
