// Valid executables, from which the fuzz test makes others.
#pragma once

#include <vector>

#include "proto/program/v1/program.pb.h"

namespace vpod::testing {

// Replicas of the job that runs them.
inline constexpr uint32_t kReplicas = 4;

// One of each op, alone or with what it needs; control and exchanges; compiled programs that train,
// in several ways, one with blocks, and that do not.
std::vector<program::v1::Executable> ExecutableSeeds();

}  // namespace vpod::testing
