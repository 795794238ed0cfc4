// Normalisation after a convolution: each chunk's rows go on at once, while they are in the caches.
#pragma once

#include "device/engine/kernels/kernel.h"
#include "device/program/executable.h"

namespace vpod::engine {

// Whether `next` reads the output of `first` by rows (Kernel::by_rows) and disturbs nothing that
// other chunks of `first` still read, so that it may run chunk by chunk with it.
bool CanFollowByRows(const program::v1::Ipu& ipu, const Instruction& first, const Kernel& kernel,
                     const Instruction& next, const Kernel& follower);

// Appends `follower` to the chunks of the kernel, whose bits it does not change.
void FollowByRows(Kernel& kernel, const Kernel& follower);

}  // namespace vpod::engine
