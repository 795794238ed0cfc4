// Arithmetic of batch normalisation on rows of n channels that lie side by side, with the same bits
// at each instruction-set level.
#pragma once

#include <cstddef>

namespace vpod::engine {

// The sums of the elements and of their squares are added in float64, which loses nothing that
// float32 inputs have.
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
void ReluGradient(const float* activated, const float* dy, float* masked, size_t n);

}  // namespace vpod::engine
