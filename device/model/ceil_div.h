// Division that rounds up.
#pragma once

#include <cstdint>

namespace vpod::model {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace vpod::model
