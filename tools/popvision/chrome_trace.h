// Traces in the format of Chrome's trace viewer, which Perfetto opens.
#pragma once

#include <string>

#include "client/pva/pva.h"

namespace vpod::popvision {

// The steps of a run: a track for each IPU, times in microseconds.
std::string ChromeTrace(const pva::Report& report);

}  // namespace vpod::popvision
