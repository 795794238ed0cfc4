// Numbers for tests: the same for the same seed, everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace vpod {

// Uniformly distributed between -scale and scale.
inline std::vector<float> RandomValues(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(generator);
  return values;
}

}  // namespace vpod
