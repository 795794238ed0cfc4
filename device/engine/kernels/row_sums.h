// Sums over the elements of a row, in double and in an order that depends on their number only.
#pragma once

#include <cstddef>

namespace vpod::engine {

double Sum(const float* x, size_t n);
double SumOfProducts(const float* x, const float* y, size_t n);
// The sum of (x - mean)^2.
double SumOfSquares(const float* x, double mean, size_t n);

}  // namespace vpod::engine
