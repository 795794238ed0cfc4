#include "device/engine/kernels/vector_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "device/base/simd.h"

// The coefficients are those of minimax polynomials, found by Remez' algorithm with 40 digits; the
// error behind each is that of the polynomial, before its coefficients are rounded.
namespace vpod::engine {
namespace {

#define VPOD_INLINE inline __attribute__((always_inline))

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

VPOD_INLINE uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
VPOD_INLINE float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
VPOD_INLINE float MultiplyAdd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
VPOD_INLINE double MultiplyAdd(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Sum of coefficients[i] * t^i.
template <size_t i = 0, class T, size_t n>
VPOD_INLINE T Polynomial(const T (&coefficients)[n], T t) {
  if constexpr (i + 1 == n) {
    return coefficients[i];
  } else {
    return MultiplyAdd(Polynomial<i + 1>(coefficients, t), t, coefficients[i]);
  }
}

// ln 2 in two parts, the first with so few bits that small multiples of it are exact.
constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;

// 2^i for -126 <= i <= 127.
VPOD_INLINE float PowerOfTwo(int32_t i) { return FromBits(static_cast<uint32_t>(i + 127) << 23); }

// With n = round(x / ln 2) and r = x - n ln 2: 2^n * (1 + r + r^2 q(r)), 2^-33.
VPOD_INLINE float ExpOf(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kInteger = 12582912;  // 1.5 * 2^23: the last bits of a sum with it are an integer
  constexpr float kQ[] = {0.5f,          0.166666672f,   0.0416663401f,
                          0.0083332965f, 0.00139425998f, 0.00019900931f};
  x = x < -110 ? -110 : x > 90 ? 90 : x;
  const float sum = MultiplyAdd(x, kLog2E, kInteger), n = sum - kInteger;
  const float r = MultiplyAdd(n, -kLn2Low, MultiplyAdd(n, -kLn2High, x));
  const float y = 1 + MultiplyAdd(r * r, Polynomial(kQ, r), r);
  // In two steps, the first of which is exact: results may be subnormal.
  const auto i = static_cast<int32_t>(Bits(sum) - Bits(kInteger));
  return y * PowerOfTwo(i >> 1) * PowerOfTwo(i - (i >> 1));
}

// With x = 2^e m, m from the root of 1/2 to that of 2, and f = m - 1:
// e ln 2 + f - f^2 / 2 + f^3 p(f), 2^-30.
VPOD_INLINE float LogOf(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3, kMantissa = (1 << 23) - 1;
  constexpr float kP[] = {0.333333135f,  -0.250000089f, 0.200021192f,  -0.166679963f, 0.142195553f,
                          -0.124055892f, 0.118881449f,  -0.116756402f, 0.0674666315f};
  const bool subnormal = x < std::numeric_limits<float>::min();
  const uint32_t bits = Bits(subnormal ? x * 0x1p23f : x) - kRootHalf;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (subnormal ? 23.0f : 0.0f);
  const float f = FromBits((bits & kMantissa) + kRootHalf) - 1;
  float y = MultiplyAdd(f * f, MultiplyAdd(f, Polynomial(kP, f), -0.5f), f);
  y = MultiplyAdd(e, kLn2High, MultiplyAdd(e, kLn2Low, y));
  y = x == kInfinity ? x : y;
  y = x == 0 ? -kInfinity : y;
  return x >= 0 ? y : kNaN;
}

// x + x^3 p(x^2) near 0, 2^-33; 1 - 2 / (exp(2x) + 1) beyond.
VPOD_INLINE float TanhOf(float x) {
  constexpr float kP[] = {-0.333333313f, 0.133332446f,    -0.0539521649f,
                          0.0217327178f, -0.00826273486f, 0.00222696504f};
  const float size = __builtin_fabsf(x), square = x * x;
  const float near = MultiplyAdd(x * square, Polynomial(kP, square), x);
  const float beyond = 1 - 2 / (ExpOf(2 * size) + 1);
  return __builtin_copysignf(size < 0.6f ? near : beyond, x);
}

VPOD_INLINE float SigmoidOf(float x) {
  const float z = ExpOf(-__builtin_fabsf(x)), y = 1 / (1 + z);
  return x < 0 ? z * y : y;
}

// x + x s(x^2) below 1, 2^-35; 1 - exp(q(x)) up to 3.95, 2^-35, from where on it rounds to 1.
VPOD_INLINE float ErfOf(float x) {
  constexpr float kS[] = {0.128379166f,   -0.376126379f,   0.112837821f,   -0.0268654004f,
                          0.00522094546f, -0.00084828294f, 0.00011256951f, -9.64152514e-06f};
  constexpr float kQ[] = {0.000188465230f, -1.12958026f,    -0.633216441f,   -0.108422078f,
                          0.0252103247f,   -0.00420527952f, 0.000441471668f, -2.1697535e-05f};
  constexpr float kOne = 3.95f;
  const float size = __builtin_fabsf(x), square = x * x;
  const float near = MultiplyAdd(x, Polynomial(kS, square), x);
  const float beyond = 1 - ExpOf(Polynomial(kQ, size > kOne ? kOne : size));
  const float y = size < 1 ? near : __builtin_copysignf(size > kOne ? 1 : beyond, x);
  return x != x ? x : y;
}

// With w = -log(1 - x^2), erfinv(x) / x is smooth in w near 0, and in the root of w beyond (M.
// Giles, "Approximating the erfinv function", 2010). Here both parts are interpolated at
// Chebyshev's nodes for w from 0 to 5, and for its root from 2.24 to 4, which is beyond the largest
// float32 below 1. The relative error is 7e-9.
float ErfInvOf(float x) {
  constexpr double kCentre[] = {
      1.501409360450329,     0.24664027905463662,    -0.004177392875203149,  -0.001252726391773229,
      0.0002183493862397664, -4.972419689454751e-06, -3.463985267633372e-06, 4.681313480553412e-07,
      2.333596719570811e-08, -8.931925970244222e-09};
  constexpr double kTail[] = {2.9533017144257854,    1.003647808788895,      0.007129219364700117,
                              -0.005377232209697363, 0.0038446438438899514,  -0.0025608372657527144,
                              0.0013228915967824738, -0.0003153581278778572, -0.0001801904966120262,
                              0.00012873813134463218};
  const double rest = (1.0 - x) * (1.0 + x);
  if (rest == 0) return std::copysign(kInfinity, x);
  if (!(rest > 0)) return kNaN;
  const double w = -Log(rest);
  return static_cast<float>(
      x * (w < 5 ? Polynomial(kCentre, w - 2.5) : Polynomial(kTail, std::sqrt(w) - 3.12)));
}

}  // namespace

VPOD_SIMD void Exp(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = ExpOf(x[i]);
}
VPOD_SIMD void Log(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = LogOf(x[i]);
}
VPOD_SIMD void Tanh(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = TanhOf(x[i]);
}
VPOD_SIMD void Sigmoid(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = SigmoidOf(x[i]);
}
VPOD_SIMD void Erf(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = ErfOf(x[i]);
}
void ErfInv(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = ErfInvOf(x[i]);
}

double Log(double x) {
  constexpr auto kRootHalf = std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  if (!(x > 0)) return x == 0 ? -std::numeric_limits<double>::infinity() : kNaN;
  if (x == std::numeric_limits<double>::infinity()) return x;
  const bool subnormal = x < std::numeric_limits<double>::min();
  // x = 2^exponent * m with m from the root of 1/2 to that of 2
  const uint64_t bits = std::bit_cast<uint64_t>(subnormal ? x * 0x1p52 : x) - kRootHalf;
  const int64_t exponent = (static_cast<int64_t>(bits) >> 52) - (subnormal ? 52 : 0);
  const auto m = std::bit_cast<double>((bits & kMantissa) + kRootHalf);
  // log m = 2 artanh s, whose series has odd powers only
  const double s = (m - 1) / (m + 1);
  constexpr double kSeries[] = {1,       1.0 / 3,  1.0 / 5,  1.0 / 7,
                                1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15};
  return static_cast<double>(exponent) * std::numbers::ln2 + 2 * s * Polynomial(kSeries, s * s);
}

double Exp(double x) {
  constexpr double kInteger = 0x1.8p52;  // the last bits of a sum with it are an integer
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kSeries[] = {1,
                                1,
                                1.0 / 2,
                                1.0 / 6,
                                1.0 / 24,
                                1.0 / 120,
                                1.0 / 720,
                                1.0 / 5040,
                                1.0 / 40320,
                                1.0 / 362880,
                                1.0 / 3628800,
                                1.0 / 39916800,
                                1.0 / 479001600};
  if (x != x) return x;
  if (x < -708) return 0;
  if (x > 709) return std::numeric_limits<double>::infinity();
  const double sum = MultiplyAdd(x, std::numbers::log2e, kInteger), n = sum - kInteger;
  const double r = MultiplyAdd(n, -kLn2Low, MultiplyAdd(n, -kLn2High, x));
  const uint64_t i = std::bit_cast<uint64_t>(sum) - std::bit_cast<uint64_t>(kInteger);
  return Polynomial(kSeries, r) * std::bit_cast<double>((i + 1023) << 52);
}

double Power(double base, double exponent) { return exponent == 0 ? 1 : Exp(exponent * Log(base)); }

// An eighth of a turn around the nearest quarter; polynomials in the square of the rest, 2^-47 and
// 2^-54.
SinCos SinCosOfTurn(uint32_t part) {
  constexpr double kSin[] = {6.28318530717956,   -41.34170224027591, 81.60524918354865,
                             -76.70583447005907, 42.055570105643575, -14.916586884487009};
  constexpr double kCos[] = {1.0,
                             -19.73920880217842,
                             64.93939402236558,
                             -85.4568170903981,
                             60.24462009295535,
                             -26.424257434336887,
                             7.81029948618339};
  constexpr uint32_t kEighth = uint32_t{1} << 29;
  const uint32_t quarter = (part + kEighth) >> 30;
  const double t = 0x1p-32 * static_cast<double>(static_cast<int32_t>(part - (quarter << 30)));
  const double sin = t * Polynomial(kSin, t * t), cos = Polynomial(kCos, t * t);
  switch (quarter) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace vpod::engine
