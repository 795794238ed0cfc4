// `vpod doctor`: what could keep a POD from working here, and what to do about it.
#pragma once

#include "tools/vpod/pod.h"

namespace vpod::tools {

// Prints a line a check; the exit status: 0 all well, 1 something is wrong.
int Doctor(const Pod& pod);

}  // namespace vpod::tools
