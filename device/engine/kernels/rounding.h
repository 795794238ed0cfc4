// Stochastic rounding of float16 results (program.proto: StochasticRounding).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/engine/kernels/kernel.h"

namespace vpod::engine {

// How the elements of an output are rounded.
struct Rounding {
  bool stochastic = false;          // otherwise to nearest, ties to even
  uint64_t seed = 0, counter = 0;   // offsets in the arena
  uint32_t number = 0, stream = 0;  // of the instruction, and of its output
};

// Rounds n elements, of which the first is number `first` of the output and each next one `step`
// behind it. A value x between two neighbours a < x < b becomes b with probability
// (x - a) / (b - a), so that its mean is x; below 2^-25 the probability is off by up to 2^-24.
// Numbers of float16 stay as they are; beyond its largest number, and for NaN, the result is that
// of rounding to nearest.
void HalvesAtRandom(const Rounding& rounding, const Workspace& at, uint64_t first, int64_t step,
                    const float* floats, _Float16* halves, size_t n);

}  // namespace vpod::engine
