// The exchanges between IPUs in a program: sends, receives and collectives.
#pragma once

#include "absl/status/status.h"
#include "proto/program/v1/program.pb.h"

namespace vpod::program {

// Plays the sends, receives and collectives of a replica's IPUs against each other: InvalidArgument
// for a program that would wait for ever. The instructions of the program have been checked each
// for itself.
absl::Status ValidateMeetings(const v1::Executable& executable, const v1::Program& program);

}  // namespace vpod::program
