// Finds what is equal in a program, as the layers of a model are, and makes it blocks
// (program.proto), which are called with the tensors of each place.
#pragma once

#include "proto/program/v1/program.pb.h"

namespace vpod::compiler {

// Replaces equal sequences of instructions in the functions of an IPU by calls. Written out
// (device/program/blocks.h), they are the instructions that were there.
void OutlineBlocks(program::v1::Ipu& ipu);

}  // namespace vpod::compiler
