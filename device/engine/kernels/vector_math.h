// Elementary functions with the same bits on every processor, for blocks of float32 and for single
// numbers. The C library's differ between its versions and between instruction sets; these consist
// of operations that IEEE 754 rounds exactly, multiply-adds among them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vpod::engine {

// y[i] = f(x[i]); y may be x. The largest error in units in the last place, as
// vector_math_test.cc measures it, is behind each. NaN, infinities and zeros give what they give in
// the C library.
void Exp(const float* x, float* y, size_t n);      // 1.0
void Log(const float* x, float* y, size_t n);      // 0.9
void Tanh(const float* x, float* y, size_t n);     // 1.4
void Sigmoid(const float* x, float* y, size_t n);  // 2.8: 1 / (1 + exp(-x))
void Erf(const float* x, float* y, size_t n);      // 1.1
// The inverse of Erf: 0.6.
void ErfInv(const float* x, float* y, size_t n);

// To 1e-12 of 1 or of the result if that is larger; NaN below 0.
double Log(double x);
// To 1e-14 of the result; 0 instead of subnormal results.
double Exp(double x);
// Of a base of 0 or more.
double Power(double base, double exponent);

// Sine and cosine of so many 2^32nd parts of a turn, to 1e-14.
struct SinCos {
  double sin, cos;
};
SinCos SinCosOfTurn(uint32_t part);

}  // namespace vpod::engine
