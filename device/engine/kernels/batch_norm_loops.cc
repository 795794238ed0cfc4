#include "device/engine/kernels/batch_norm_loops.h"

#include <cstddef>

#include "device/base/simd.h"
#include "device/engine/kernels/relu.h"

namespace vpod::engine {
namespace {

// Adds two terms of each element to the sums of its channel, in the order of the rows:
// `terms(element, channel, sums)`. The sums of kChannels channels stay in registers meanwhile.
// Loops, not vector types, which would be split for the lowest level of instructions first.
template <size_t kChannels, class Terms>
inline __attribute__((always_inline)) void AddTerms(size_t rows, size_t n, size_t channel,
                                                    double* first, double* second,
                                                    const Terms& terms) {
  double a[kChannels], b[kChannels];
  for (size_t i = 0; i < kChannels; ++i) a[i] = first[channel + i];
  for (size_t i = 0; i < kChannels; ++i) b[i] = second[channel + i];
  for (size_t row = 0; row < rows; ++row) {
#pragma GCC unroll 1
    for (size_t i = 0; i < kChannels; ++i) terms(row * n + channel + i, channel + i, a[i], b[i]);
  }
  for (size_t i = 0; i < kChannels; ++i) first[channel + i] = a[i];
  for (size_t i = 0; i < kChannels; ++i) second[channel + i] = b[i];
}

template <class Terms>
inline __attribute__((always_inline)) void AddAllTerms(size_t rows, size_t n, double* first,
                                                       double* second, const Terms& terms) {
  size_t c = 0;
  for (; c + 32 <= n; c += 32) AddTerms<32>(rows, n, c, first, second, terms);
  for (; c + 16 <= n; c += 16) AddTerms<16>(rows, n, c, first, second, terms);
  for (; c + 8 <= n; c += 8) AddTerms<8>(rows, n, c, first, second, terms);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t rest = c; rest < n; ++rest) terms(row * n + rest, rest, first[rest], second[rest]);
  }
}

}  // namespace

VPOD_SIMD void AddMoments(const float* x, size_t rows, size_t n, double* sums, double* squares) {
  AddAllTerms(
      rows, n, sums, squares,
      [x](size_t element, size_t, double& sum, double& square) __attribute__((always_inline)) {
        const double value = x[element];
        sum += value;
        square += value * value;
      });
}

VPOD_SIMD void AddGradients(const float* x, const float* dy, const float* mean, size_t rows,
                            size_t n, double* sums, double* products) {
  AddAllTerms(
      rows, n, sums, products,
      [ x, dy, mean ](size_t element, size_t channel, double& sum, double& product)
          __attribute__((always_inline)) {
            const double gradient = dy[element];
            sum += gradient;
            product += gradient * (static_cast<double>(x[element]) - mean[channel]);
          });
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
