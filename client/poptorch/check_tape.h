// Whether the numbers on a tape are places in its lists.
#pragma once

#include "absl/status/status.h"
#include "client/poptorch/program.h"

namespace vpod::poptorch {

// InvalidArgument says what has a number that does not exist. Everything that is used as an index
// is looked at, so that later steps need not.
absl::Status CheckTape(const Tape& tape);

}  // namespace vpod::poptorch
