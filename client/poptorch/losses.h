// Which of the losses that a forward pass computes is trained.
#pragma once

#include "absl/status/statusor.h"
#include "client/poptorch/program.h"

namespace vpod::poptorch {

// The marked loss on which no other marked loss depends. InvalidArgument, in PopTorch's words:
// there is none, or there are several.
absl::StatusOr<ValueId> FindLoss(const Tape& tape);

}  // namespace vpod::poptorch
