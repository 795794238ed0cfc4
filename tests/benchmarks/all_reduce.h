// Helpers that our part and the peers' part of the all-reduce benchmark share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace vpod {

// All-reduces in one measurement.
inline int Repetitions(size_t bytes) {
  return bytes >= (16u << 20) ? 3 : bytes >= (1u << 20) ? 20 : 200;
}

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Contribution of a replica, or rank.
inline float Contribution(int replica, size_t element) {
  return 0.1f * static_cast<float>(replica + 1) * static_cast<float>(1 + element % 1021);
}

// Whether `sums` are those of `replicas` contributions, but for the rounding of float32 sums.
template <class Values>
bool IsSum(const Values& sums, int replicas) {
  for (size_t i = 0; i < sums.size(); ++i) {
    double sum = 0;
    for (int r = 0; r < replicas; ++r) sum += static_cast<double>(Contribution(r, i));
    if (std::abs(static_cast<double>(sums[i]) - sum) > 1e-5 * sum) return false;
  }
  return true;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace vpod
