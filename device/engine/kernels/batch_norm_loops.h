// Arithmetic of batch normalisation on rows of n channels that lie side by side, with the same bits
// at each instruction-set level.
#pragma once

#include <cstddef>

namespace vpod::engine {

// Adds up the elements and their squares in float64, whose 29 more bits keep the variance as exact
// as float32 unless the mean is thousands of deviations.
void AddMoments(const float* x, size_t rows, size_t n, double* sums, double* squares);
// Sums of dy and of dy * (x - mean).
void AddGradients(const float* x, const float* dy, const float* mean, size_t rows, size_t n,
                  double* sums, double* products);
// y = (x - mean) * factor + offset
void Normalize(const float* x, const float* mean, const float* factor, const float* offset,
               float* y, size_t rows, size_t n);
// dx = factor * (dy - mean of dy - (x - mean) * slope)
void InputGradient(const float* x, const float* dy, const float* mean, const float* factor,
                   const float* mean_dy, const float* slope, float* dx, size_t rows, size_t n);
void AddTo(float* values, const float* addend, size_t n);
void Sum(const float* a, const float* b, float* sum, size_t n);
void Relu(float* values, size_t n);
void Relu6(float* values, size_t n);
// `y` is what the RELU took or gave; `masked` may be one of the others.
void ReluGradient(const float* y, const float* dy, float* masked, size_t n);
void Relu6Gradient(const float* y, const float* dy, float* masked, size_t n);
// The same with y as Normalize gives it; at most 6 with `six`.
void NormalizedReluGradient(bool six, const float* x, const float* mean, const float* factor,
                            const float* offset, const float* dy, float* masked, size_t rows,
                            size_t n);

}  // namespace vpod::engine
