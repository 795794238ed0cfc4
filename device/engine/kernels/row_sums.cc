#include "device/engine/kernels/row_sums.h"

#include "device/base/simd.h"

namespace vpod::engine {
namespace {

constexpr size_t kLanes = 16;

// Element i goes to lane i modulo kLanes; the lanes are added in order.
template <class Term>
inline __attribute__((always_inline)) double SumOfTerms(size_t n, const Term& term) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (size_t lane = 0; i + lane < n; ++lane) lanes[lane] += term(i + lane);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

VPOD_SIMD double Sum(const float* x, size_t n) {
  return SumOfTerms(
      n, [x](size_t i) __attribute__((always_inline)) { return double{x[i]}; });
}
VPOD_SIMD double SumOfProducts(const float* x, const float* y, size_t n) {
  return SumOfTerms(
      n, [ x, y ](size_t i) __attribute__((always_inline)) { return double{x[i]} * y[i]; });
}
VPOD_SIMD double SumOfSquares(const float* x, double mean, size_t n) {
  return SumOfTerms(
      n, [ x, mean ](size_t i) __attribute__((always_inline)) {
        const double distance = x[i] - mean;
        return distance * distance;
      });
}

}  // namespace vpod::engine
