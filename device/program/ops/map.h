// The limits of a map, whose kernel holds a block of each input and step in the caches.
#pragma once

namespace vpod::program {

inline constexpr int kMostMapInputs = 12, kMostMapSteps = 32;

}  // namespace vpod::program
