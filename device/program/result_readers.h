// Which all-reduces need to give their results to one replica only: those whose results nobody
// reads but the steps that run once for all replicas (uniformity.h).
#pragma once

#include <vector>

#include "device/program/executable.h"
#include "device/program/uniformity.h"

namespace vpod::program {

// Adds such all-reduces to uniformity.results_for_one. An executable whose control flow takes too
// long to follow has none.
void FindResultsForOne(const Executable& executable, const ReplicaRange& replicas,
                       Uniformity& uniformity);

}  // namespace vpod::program
