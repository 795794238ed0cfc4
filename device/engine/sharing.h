// Which variables the local replicas of an engine share, and in which pages of their arenas.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program/byte_set.h"
#include "device/program/executable.h"
#include "device/program/uniformity.h"

namespace vpod::engine {

// Whole pages of one segment are mapped into all arenas, so that kernels find a variable at its
// offset whether it is shared or not. They have no copy-on-write: the engine splits them itself.
struct SharingPlan {
  program::Uniformity uniform;          // what is shared: all of it lies in `pages`
  std::vector<program::ByteSet> pages;  // [ipu], whole pages of the arena
};

// Adds the whole pages in which these bytes lie.
void AddPages(uint64_t begin, uint64_t end, program::ByteSet& pages);

// `candidates` as for FindUniform. A variable is not shared if some other tensor lies in one of its
// pages.
SharingPlan PlanSharing(const program::Executable& executable,
                        const program::ReplicaRange& replicas, std::vector<bool> candidates);

}  // namespace vpod::engine
