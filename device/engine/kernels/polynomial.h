// Pieces of vector_math.cc and vector_math_double.cc, which are inlined, so that the loops around
// them are vectorised.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "device/base/simd.h"

namespace vpod::engine {

#define VPOD_INLINE inline __attribute__((always_inline))

// A function of blocks: out[i] = expression, of x = in[i] as a T.
#define VPOD_VECTOR_FUNCTION(name, T, expression)              \
  VPOD_SIMD void name(const float* in, float* out, size_t n) { \
    for (size_t i = 0; i < n; ++i) {                           \
      const T x = in[i];                                       \
      out[i] = static_cast<float>(expression);                 \
    }                                                          \
  }

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

VPOD_INLINE float MultiplyAdd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
VPOD_INLINE double MultiplyAdd(double a, double b, double c) { return __builtin_fma(a, b, c); }

VPOD_INLINE uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
VPOD_INLINE uint64_t Bits(double x) { return std::bit_cast<uint64_t>(x); }

VPOD_INLINE float Size(float x) { return __builtin_fabsf(x); }
VPOD_INLINE double Size(double x) { return __builtin_fabs(x); }
VPOD_INLINE float WithSign(float size, float sign) { return __builtin_copysignf(size, sign); }
VPOD_INLINE double WithSign(double size, double sign) { return __builtin_copysign(size, sign); }

// Sum of coefficients[i] * t^i.
template <size_t i = 0, class T, size_t n>
VPOD_INLINE T Polynomial(const T (&coefficients)[n], T t) {
  if constexpr (i + 1 == n) {
    return coefficients[i];
  } else {
    return MultiplyAdd(Polynomial<i + 1>(coefficients, t), t, coefficients[i]);
  }
}

}  // namespace vpod::engine
