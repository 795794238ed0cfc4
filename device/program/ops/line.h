// Ops along the lines of a tensor.
#pragma once

#include <cstdint>

namespace vpod::program {

// The longest line that is sorted: its elements and their places take 256 MiB of the host's memory
// while they are merged.
inline constexpr int64_t kMostSortedElements = 1 << 24;

}  // namespace vpod::program
