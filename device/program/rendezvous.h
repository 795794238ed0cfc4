// The exchanges between IPUs in a program: sends, receives and collectives.
#pragma once

#include "absl/status/status.h"
#include "device/program/executable.h"

namespace vpod::program {

// Plays the sends, receives and collectives of a replica's IPUs against each other: InvalidArgument
// for a program that would wait for ever. The instructions of the program have been checked each
// for itself. `rendezvous` counts those of all programs up to this one, which have a limit
// together.
absl::Status ValidateRendezvous(const v1::Executable& executable, const v1::Program& program,
                                const Limits& limits, uint64_t& rendezvous);

}  // namespace vpod::program
