// How an element becomes one of another type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace vpod::engine {

template <class To, class From>
To Convert(From value) {
  if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    // Towards zero, saturating; not-a-number becomes 0.
    const auto wide = static_cast<double>(value);
    if (std::isnan(wide)) return 0;
    return static_cast<To>(std::clamp<double>(std::trunc(wide), std::numeric_limits<To>::min(),
                                              std::numeric_limits<To>::max()));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace vpod::engine
