// Test data that differ from place to place and from seed to seed, so that data which arrive
// shifted, mixed up or not at all are noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace vpod::base {

// Fills whole 8-byte words (xorshift); a rest shorter than one stays as it is.
inline void FillPattern(absl::Span<std::byte> data, uint64_t seed) {
  uint64_t state = (0x9e3779b97f4a7c15 + seed) | 1;  // never 0
  for (size_t at = 0; at + sizeof(state) <= data.size(); at += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data.data() + at, &state, sizeof(state));
  }
}

}  // namespace vpod::base
