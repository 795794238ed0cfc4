// Epilogue fusion: the normalisation after a convolution runs on the rows of each chunk, while they
// are in the caches.
#pragma once

#include "device/engine/kernels/kernel.h"
#include "device/program/executable.h"

namespace vpod::engine {

// Whether `next` reads the output of `first` by rows (Kernel::by_rows) and disturbs nothing that
// other chunks of `first` still read, so that it may run chunk by chunk with it.
bool CanBeEpilogue(const program::v1::Ipu& ipu, const Instruction& first, const Kernel& kernel,
                   const Instruction& next, const Kernel& epilogue);

// Appends the epilogue to the chunks of the kernel, whose bits it does not change.
void AttachEpilogue(Kernel& kernel, const Kernel& epilogue);

}  // namespace vpod::engine
