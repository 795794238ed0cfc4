// Elementary functions with the same bits on every processor, for blocks of float32 and for single
// numbers. The C library's differ between its versions and between instruction sets; these consist
// of operations that IEEE 754 rounds exactly, multiply-adds among them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vpod::engine {

// out[i] = f(in[i]); both may be one. NaN, infinities and zeros give what they give in the C
// library. Behind each is its largest error in units in the last place, as vector_math_test.cc
// measures it.

// --- Computed in float32, for activations and losses (vector_math.cc) ---
void Exp(const float* in, float* out, size_t n);      // 1.0
void Log(const float* in, float* out, size_t n);      // 0.9
void Tanh(const float* in, float* out, size_t n);     // 1.4
void Sigmoid(const float* in, float* out, size_t n);  // 2.8: 1 / (1 + exp(-x))
void Erf(const float* in, float* out, size_t n);      // 1.1
void Silu(const float* in, float* out, size_t n);     // 2.9: x / (1 + exp(-x))
// out[i] = dy[i] * the derivative of Silu at x[i]; `out` may be one of the others.
void SiluGradient(const float* x, const float* dy, float* out, size_t n);
// Exact.
void Floor(const float* in, float* out, size_t n);
void Ceil(const float* in, float* out, size_t n);
void Round(const float* in, float* out, size_t n);  // ties to even
void Truncate(const float* in, float* out, size_t n);

// --- Computed in double: 0.6 (vector_math_double.cc) ---
void ErfInv(const float* in, float* out, size_t n);
void Sin(const float* in, float* out, size_t n);
void Cos(const float* in, float* out, size_t n);
void Tan(const float* in, float* out, size_t n);
void Asin(const float* in, float* out, size_t n);
void Acos(const float* in, float* out, size_t n);
void Atan(const float* in, float* out, size_t n);
void Sinh(const float* in, float* out, size_t n);
void Cosh(const float* in, float* out, size_t n);
void Asinh(const float* in, float* out, size_t n);
void Acosh(const float* in, float* out, size_t n);
void Atanh(const float* in, float* out, size_t n);
void Expm1(const float* in, float* out, size_t n);
void Log1p(const float* in, float* out, size_t n);
// out[i] = f(a[i], b[i]).
void Power(const float* a, const float* b, float* out, size_t n);
void Atan2(const float* a, const float* b, float* out, size_t n);

// --- Single numbers ---
// To 1e-12 of 1 or of the result if that is larger; NaN below 0.
double Log(double x);
// To 1e-14 of the result; 0 instead of subnormal results.
double Exp(double x);
// The base is 0 or more.
double Power(double base, double exponent);

// Sine and cosine of so many 2^32nd parts of a turn, to 1e-13.
struct SinCos {
  double sin, cos;
};
SinCos SinCosOfTurn(uint32_t part);

}  // namespace vpod::engine
