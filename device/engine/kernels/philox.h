// Counter-based random bits: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011).
#pragma once

#include <cstddef>
#include <cstdint>

namespace vpod::engine {

// Blocks of four words that are made together, side by side so that the loops vectorise.
inline constexpr size_t kPhiloxLanes = 64;
inline constexpr size_t kPhiloxWords = 4;

// words[w][lane]
using PhiloxBlocks = uint32_t[kPhiloxWords][kPhiloxLanes];

// Turns counters into random words. The key has two words.
void Philox(const uint32_t* key, PhiloxBlocks& blocks);

}  // namespace vpod::engine
