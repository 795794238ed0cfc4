#include "device/engine/kernels/batch_norm_loops.h"

#include "device/base/simd.h"
#include "device/engine/kernels/relu.h"

namespace vpod::engine {
namespace {

// Channels whose sums stay in registers while all rows pass. Sums of a channel are added in the
// order of its rows, whatever this number is.
typedef double Doubles __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(32)));
constexpr size_t kLanes = 8;

inline __attribute__((always_inline)) void Widen(const float* from, Doubles& to) {
  Floats floats;
  __builtin_memcpy(&floats, from, sizeof(floats));
  to = __builtin_convertvector(floats, Doubles);
}

// Adds two terms of each element to sums; `term(c, rows so far)` gives them.
template <size_t kVectors, class Terms>
inline __attribute__((always_inline)) void AddTerms(size_t rows, double* first, double* second,
                                                    const Terms& terms) {
  Doubles a[kVectors], b[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    __builtin_memcpy(&a[v], first + v * kLanes, sizeof(Doubles));
    __builtin_memcpy(&b[v], second + v * kLanes, sizeof(Doubles));
  }
  for (size_t row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) terms(row, v * kLanes, a[v], b[v]);
  }
  for (size_t v = 0; v < kVectors; ++v) {
    __builtin_memcpy(first + v * kLanes, &a[v], sizeof(Doubles));
    __builtin_memcpy(second + v * kLanes, &b[v], sizeof(Doubles));
  }
}

}  // namespace

VPOD_SIMD void AddMoments(const float* x, size_t rows, size_t n, double* sums, double* squares) {
  const auto add = [&](size_t c) {
    return [x = x + c, n](size_t row, size_t lane, Doubles& sum, Doubles& square) {
      Doubles value;
      Widen(x + row * n + lane, value);
      sum += value;
      square += value * value;
    };
  };
  size_t c = 0;
  for (; c + 2 * kLanes <= n; c += 2 * kLanes) AddTerms<2>(rows, sums + c, squares + c, add(c));
  for (; c + kLanes <= n; c += kLanes) AddTerms<1>(rows, sums + c, squares + c, add(c));
  for (size_t row = 0; row < rows; ++row) {
    for (size_t rest = c; rest < n; ++rest) {
      const double value = x[row * n + rest];
      sums[rest] += value;
      squares[rest] += value * value;
    }
  }
}

VPOD_SIMD void AddGradients(const float* x, const float* dy, const float* mean, size_t rows,
                            size_t n, double* sums, double* products) {
  const auto add = [&](size_t c) {
    return [x = x + c, dy = dy + c, mean = mean + c, n](size_t row, size_t lane, Doubles& sum,
                                                        Doubles& product) {
      const size_t at = row * n + lane;
      Doubles gradient, value, average;
      Widen(dy + at, gradient);
      Widen(x + at, value);
      Widen(mean + lane, average);
      sum += gradient;
      product += gradient * (value - average);
    };
  };
  size_t c = 0;
  for (; c + 2 * kLanes <= n; c += 2 * kLanes) AddTerms<2>(rows, sums + c, products + c, add(c));
  for (; c + kLanes <= n; c += kLanes) AddTerms<1>(rows, sums + c, products + c, add(c));
  for (size_t row = 0; row < rows; ++row) {
    for (size_t rest = c; rest < n; ++rest) {
      const double gradient = dy[row * n + rest];
      sums[rest] += gradient;
      products[rest] += gradient * (static_cast<double>(x[row * n + rest]) - mean[rest]);
    }
  }
}

VPOD_SIMD void Normalize(const float* x, const float* mean, const float* factor,
                         const float* offset, float* y, size_t rows, size_t n) {
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    for (size_t c = 0; c < n; ++c) y[c] = (x[c] - mean[c]) * factor[c] + offset[c];
  }
}

VPOD_SIMD void InputGradient(const float* x, const float* dy, const float* mean,
                             const float* factor, const float* mean_dy, const float* slope,
                             float* dx, size_t rows, size_t n) {
  for (size_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    for (size_t c = 0; c < n; ++c)
      dx[c] = factor[c] * (dy[c] - mean_dy[c] - (x[c] - mean[c]) * slope[c]);
  }
}

VPOD_SIMD void AddTo(float* values, const float* addend, size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] += addend[i];
}
VPOD_SIMD void Sum(const float* a, const float* b, float* sum, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}
VPOD_SIMD void Relu(float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] = ReluOf(values[i]);
}
VPOD_SIMD void Relu6(float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) values[i] = Relu6Of(values[i]);
}
VPOD_SIMD void ReluGradient(const float* y, const float* dy, float* masked, size_t n) {
  for (size_t i = 0; i < n; ++i) masked[i] = ReluGradientOf(y[i], dy[i]);
}
VPOD_SIMD void Relu6Gradient(const float* y, const float* dy, float* masked, size_t n) {
  for (size_t i = 0; i < n; ++i) masked[i] = Relu6GradientOf(y[i], dy[i]);
}

namespace {

template <bool kSix>
inline __attribute__((always_inline)) void MaskRows(const float* x, const float* mean,
                                                    const float* factor, const float* offset,
                                                    const float* dy, float* masked, size_t rows,
                                                    size_t n) {
  for (size_t row = 0; row < rows; ++row, x += n, dy += n, masked += n) {
    for (size_t c = 0; c < n; ++c) {
      const float y = (x[c] - mean[c]) * factor[c] + offset[c];
      masked[c] = kSix ? Relu6GradientOf(y, dy[c]) : ReluGradientOf(y, dy[c]);
    }
  }
}

}  // namespace

VPOD_SIMD void NormalizedReluGradient(bool six, const float* x, const float* mean,
                                      const float* factor, const float* offset, const float* dy,
                                      float* masked, size_t rows, size_t n) {
  if (six) {
    MaskRows<true>(x, mean, factor, offset, dy, masked, rows, n);
  } else {
    MaskRows<false>(x, mean, factor, offset, dy, masked, rows, n);
  }
}

}  // namespace vpod::engine
