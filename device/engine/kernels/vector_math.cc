#include "device/engine/kernels/vector_math.h"

#include "device/engine/kernels/polynomial.h"

// The coefficients are those of minimax polynomials, found by Remez' algorithm with 40 digits; the
// error behind each is that of the polynomial, before its coefficients are rounded.
namespace vpod::engine {
namespace {

// ln 2 in two parts, the first with so few bits that small multiples of it are exact.
constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;

// 2^i for -126 <= i <= 127.
VPOD_INLINE float PowerOfTwo(int32_t i) {
  return std::bit_cast<float>(static_cast<uint32_t>(i + 127) << 23);
}

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
  const float f = std::bit_cast<float>((bits & kMantissa) + kRootHalf) - 1;
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
  const float square = x * x;
  const float near = MultiplyAdd(x * square, Polynomial(kP, square), x);
  const float beyond = 1 - 2 / (ExpOf(2 * Size(x)) + 1);
  return WithSign(Size(x) < 0.6f ? near : beyond, x);
}

VPOD_INLINE float SigmoidOf(float x) {
  const float z = ExpOf(-Size(x)), y = 1 / (1 + z);
  return x < 0 ? z * y : y;
}

VPOD_INLINE float SiluOf(float x) {
  // Where exp(x) has lost its digits, its product with x has not.
  constexpr float kFar = -80, kShift = 64, kExpOfMinusShift = 1.60381089e-28f;
  const float z = ExpOf(x < kFar ? x + kShift : -Size(x));
  const float y = x < kFar ? kExpOfMinusShift : 1 / (1 + z);
  return x < 0 ? x * z * y : x * y;
}

// x + x s(x^2) below 1, 2^-35; 1 - exp(q(x)) up to 3.95, 2^-35, from where on it rounds to 1.
VPOD_INLINE float ErfOf(float x) {
  constexpr float kS[] = {0.128379166f,   -0.376126379f,   0.112837821f,   -0.0268654004f,
                          0.00522094546f, -0.00084828294f, 0.00011256951f, -9.64152514e-06f};
  constexpr float kQ[] = {0.000188465230f, -1.12958026f,    -0.633216441f,   -0.108422078f,
                          0.0252103247f,   -0.00420527952f, 0.000441471668f, -2.1697535e-05f};
  constexpr float kOne = 3.95f;
  const float near = MultiplyAdd(x, Polynomial(kS, x * x), x);
  const float beyond = 1 - ExpOf(Polynomial(kQ, Size(x) > kOne ? kOne : Size(x)));
  const float y = Size(x) < 1 ? near : WithSign(Size(x) > kOne ? 1 : beyond, x);
  return x != x ? x : y;
}

}  // namespace

VPOD_VECTOR_FUNCTION(Exp, float, ExpOf(x))
VPOD_VECTOR_FUNCTION(Log, float, LogOf(x))
VPOD_VECTOR_FUNCTION(Tanh, float, TanhOf(x))
VPOD_VECTOR_FUNCTION(Sigmoid, float, SigmoidOf(x))
VPOD_VECTOR_FUNCTION(Erf, float, ErfOf(x))
VPOD_VECTOR_FUNCTION(Silu, float, SiluOf(x))

VPOD_SIMD void SiluGradient(const float* x, const float* dy, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float s = SigmoidOf(x[i]);
    out[i] = s * (1 + x[i] * (1 - s)) * dy[i];
  }
}

VPOD_VECTOR_FUNCTION(Floor, float, __builtin_floorf(x))
VPOD_VECTOR_FUNCTION(Ceil, float, __builtin_ceilf(x))
VPOD_VECTOR_FUNCTION(Round, float, __builtin_rintf(x))
VPOD_VECTOR_FUNCTION(Truncate, float, __builtin_truncf(x))

}  // namespace vpod::engine
