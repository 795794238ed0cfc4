#include <numbers>

#include "device/engine/kernels/polynomial.h"
#include "device/engine/kernels/vector_math.h"

// The coefficients are those of minimax polynomials, found by Remez' algorithm with 40 digits, with
// the error that is behind each, or of series. With 29 bits more than a float32, rounding the
// result is all that is left of the error.
namespace vpod::engine {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInteger = 0x1.8p52;  // the last bits of a sum with it are an integer
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// With n = round(x / ln 2): 2^n * exp(x - n ln 2), whose series is cut at 2^-52.
VPOD_INLINE double ExpOf(double x) {
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
  const double sum = MultiplyAdd(x, std::numbers::log2e, kInteger), n = sum - kInteger;
  const double r = MultiplyAdd(n, -kLn2Low, MultiplyAdd(n, -kLn2High, x));
  return Polynomial(kSeries, r) * std::bit_cast<double>((Bits(sum) - Bits(kInteger) + 1023) << 52);
}

// Takes a number that may be too large or small: where the result is beyond all float32, so is the
// one that is given.
VPOD_INLINE double BoundedExp(double x) { return ExpOf(x < -700 ? -700 : x > 700 ? 700 : x); }

// Takes a normal number above 0. x = 2^e * m with m from the root of 1/2 to that of 2; log m is
// 2 artanh s, whose series has odd powers only; to 1e-12.
VPOD_INLINE double LogOf(double x) {
  constexpr uint64_t kRootHalf = std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  constexpr double kSeries[] = {1,       1.0 / 3,  1.0 / 5,  1.0 / 7,
                                1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15};
  const uint64_t bits = Bits(x) - kRootHalf;
  // The exponent as the last bits of a number: processors convert no vectors of integers.
  const double e = std::bit_cast<double>(((bits + (uint64_t{1024} << 52)) >> 52) + Bits(0x1p52)) -
                   (0x1p52 + 1024);
  const double m = std::bit_cast<double>((bits & kMantissa) + kRootHalf);
  const double s = (m - 1) / (m + 1);
  return MultiplyAdd(e, std::numbers::ln2, 2 * s * Polynomial(kSeries, s * s));
}

// log(1 + x), with what the sum loses of a small x.
VPOD_INLINE double Log1pOf(double x) {
  const double sum = 1 + x;
  return LogOf(sum) + (x - (sum - 1)) / sum;
}

// x + x^2 p(x) near 0, 2^-38.
VPOD_INLINE double Expm1Of(double x) {
  constexpr double kP[] = {0.4999999999542422,     0.16666666664587326,   0.041666668997320376,
                           0.008333334181810063,   0.0013888568821443527, 0.00019840394605933777,
                           2.4964339842944178e-05, 2.7854199990808678e-06};
  return Size(x) < 0.5 ? MultiplyAdd(x * x, Polynomial(kP, x), x) : BoundedExp(x) - 1;
}

// --- Circular functions ---

// Sine and cosine of at most an eighth of a turn; 2^-47 and 2^-44.
VPOD_INLINE double NearSin(double r) {
  constexpr double kP[] = {-0.16666666666631588, 0.008333333325270833, -0.00019841263822341988,
                           2.7555357599709292e-06, -2.4761639664250352e-08};
  const double square = r * r;
  return WithSign(MultiplyAdd(r * square, Polynomial(kP, square), r), r);
}
VPOD_INLINE double NearCos(double r) {
  constexpr double kP[] = {0.9999999999999445,    -0.4999999999935123,    0.041666666543912344,
                           -0.001388888039319699, 2.4798928530885906e-05, -2.717340768832962e-07};
  return Polynomial(kP, r * r);
}

// An angle as quarters of a turn and a rest of at most half of one. Quarters count modulo 4.
struct Angle {
  uint64_t quarters;
  double rest;

  VPOD_INLINE double Sin() const {
    const double y = (quarters & 1) != 0 ? NearCos(rest) : NearSin(rest);
    return (quarters & 2) != 0 ? -y : y;
  }
  VPOD_INLINE double Tan() const {
    const double sin = NearSin(rest), cos = NearCos(rest);
    return (quarters & 1) != 0 ? -cos / sin : sin / cos;
  }
};

constexpr float kMostReduced = 0x1p26f;

// Takes at most kMostReduced: a quarter of a turn, pi / 2, in two parts gives the rest to 2^-70.
VPOD_INLINE Angle Reduce(double x) {
  const double sum = MultiplyAdd(x, 2 / kPi, kInteger), n = sum - kInteger;
  return {Bits(sum),
          MultiplyAdd(n, -0x1.1a62633145c07p-54, MultiplyAdd(n, -0x1.921fb54442d18p+0, x))};
}

// Takes a larger one, m * 2^e with an integer m: the bits of 2 / pi whose product with it is a
// multiple of 4 do not matter, and 96 of the following do.
Angle ReduceLarge(float x) {
  constexpr uint32_t kTwoOverPi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                     0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
  using Wide = unsigned __int128;
  if (!(Size(x) < kInfinity)) return {0, kNaN};
  const int e = static_cast<int>((Bits(x) >> 23) & 255) - 150;
  const uint64_t m = (Bits(x) & ((1 << 23) - 1)) | 1 << 23;
  const auto word = [&](int i) {
    const int bit = e + 30 + 32 * i;
    const uint64_t two = uint64_t{kTwoOverPi[bit / 32]} << 32 | kTwoOverPi[bit / 32 + 1];
    return Wide{(two << (bit % 32)) >> 32};
  };
  // In units of 2^-126 quarters.
  const Wide product = ((word(0) << 64 | word(1) << 32 | word(2)) * m) << 32;
  const uint64_t quarters = (static_cast<uint64_t>(product >> 64) + (uint64_t{1} << 61)) >> 62;
  const Wide rest = product - (Wide{quarters} << 126);
  const double r = (static_cast<double>(static_cast<int64_t>(rest >> 64)) * 0x1p-62 +
                    static_cast<double>(static_cast<uint64_t>(rest)) * 0x1p-126) *
                   (kPi / 2);
  return x < 0 ? Angle{-quarters, -r} : Angle{quarters, r};
}

// Calls `near` for all and `far` for each number that is too large for it.
template <class Near, class Far>
void WithLarge(const float* in, float* out, size_t n, const Near& near, const Far& far) {
  constexpr size_t kBlock = 512;
  float x[kBlock];  // `out` may be `in`
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = n - first < kBlock ? n - first : kBlock;
    for (size_t i = 0; i < count; ++i) x[i] = in[first + i];
    near(x, out + first, count);
    for (size_t i = 0; i < count; ++i) {
      if (!(Size(x[i]) <= kMostReduced)) out[first + i] = static_cast<float>(far(x[i]));
    }
  }
}

VPOD_VECTOR_FUNCTION(SinOfReduced, double, Reduce(x).Sin())
VPOD_VECTOR_FUNCTION(CosOfReduced, double, (Angle{Reduce(x).quarters + 1, Reduce(x).rest}.Sin()))
VPOD_VECTOR_FUNCTION(TanOfReduced, double, Reduce(x).Tan())

// From 0 to 1; x p(x^2), 2^-34.
VPOD_INLINE double NearAtan(double x) {
  constexpr double kP[] = {0.9999999999412459,   -0.33333331571170627, 0.19999912048506968,
                           -0.14283980718689057, 0.11093241013609598,  -0.08980238334336642,
                           0.07245717090646607,  -0.05427910122467588, 0.0342096182857728,
                           -0.01611169948861173, 0.004850945962000543, -0.0006847954100971317};
  return x * Polynomial(kP, x * x);
}
// The angle of (x, y) in the first quarter of a turn, its ends included; of two zeros it is 0.
VPOD_INLINE double FirstAngle(double y, double x) {
  const bool steep = y > x;
  const double quotient = x == y ? (x == 0 ? 0 : 1) : steep ? x / y : y / x;
  return steep ? kPi / 2 - NearAtan(quotient) : NearAtan(quotient);
}
VPOD_INLINE double Atan2Of(double y, double x) {
  const double angle = FirstAngle(Size(y), Size(x));
  const bool left = (Bits(x) >> 63) != 0;
  return x != x || y != y ? kNaN : WithSign(left ? kPi - angle : angle, y);
}
VPOD_INLINE double AsinOf(double x) {
  const double size = Size(x), cos = __builtin_sqrt((1 - size) * (1 + size));
  return size <= 1 ? WithSign(FirstAngle(size, cos), x) : kNaN;
}
VPOD_INLINE double AcosOf(double x) {
  return Size(x) <= 1 ? 2 * FirstAngle(__builtin_sqrt(1 - x), __builtin_sqrt(1 + x)) : kNaN;
}

// --- Hyperbolic functions ---

// x + x^3 p(x^2) below 1, 2^-43.
VPOD_INLINE double SinhOf(double x) {
  constexpr double kP[] = {0.16666666667047295, 0.008333333278472419, 0.00019841295399042672,
                           2.755214125973319e-06, 2.5526644091069323e-08};
  const double square = x * x, e = BoundedExp(Size(x));
  const double near = MultiplyAdd(x * square, Polynomial(kP, square), x);
  return WithSign(Size(x) < 1 ? near : 0.5 * (e - 1 / e), x);
}
VPOD_INLINE double CoshOf(double x) {
  const double e = BoundedExp(Size(x));
  return 0.5 * (e + 1 / e);
}
VPOD_INLINE double AsinhOf(double x) {
  const double size = Size(x), square = size * size;
  const double y = Log1pOf(size + square / (1 + __builtin_sqrt(square + 1)));
  return size < kInfinite ? WithSign(y, x) : x;
}
VPOD_INLINE double AcoshOf(double x) {
  const double above = x - 1, y = Log1pOf(above + __builtin_sqrt(above * (above + 2)));
  return x >= 1 ? (x == kInfinite ? x : y) : kNaN;
}
VPOD_INLINE double AtanhOf(double x) {
  const double size = Size(x), y = 0.5 * Log1pOf(2 * size / (1 - size));
  return size < 1 ? WithSign(y, x) : size == 1 ? WithSign(kInfinite, x) : kNaN;
}

// --- Powers ---

VPOD_INLINE double PowerOf(double a, double b) {
  const double size = Size(a);
  double y = BoundedExp(b * LogOf(size));
  y = size == 0 ? (b < 0 ? kInfinite : 0) : y;
  y = size == kInfinite ? (b < 0 ? 0 : kInfinite) : y;
  y = size == 1 ? 1 : y;
  const bool integer = __builtin_floor(b) == b;
  const bool odd = integer && __builtin_floor(0.5 * b) != 0.5 * b;
  const bool negative = (Bits(a) >> 63) != 0;
  y = negative && odd ? -y : y;
  y = negative && !integer && size != 0 && size != kInfinite ? kNaN : y;
  y = a != a || b != b ? kNaN : y;
  return b == 0 || a == 1 ? 1 : y;
}

// With w = -log(1 - x^2), erfinv(x) / x is smooth in w near 0, and in the root of w beyond (M.
// Giles, "Approximating the erfinv function", 2010). Here both parts are interpolated at
// Chebyshev's nodes for w from 0 to 5, and for its root from 2.24 to 4, which is beyond the largest
// float32 below 1. The relative error is 7e-9.
VPOD_INLINE double ErfInvOf(double x) {
  constexpr double kCentre[] = {
      1.501409360450329,     0.24664027905463662,    -0.004177392875203149,  -0.001252726391773229,
      0.0002183493862397664, -4.972419689454751e-06, -3.463985267633372e-06, 4.681313480553412e-07,
      2.333596719570811e-08, -8.931925970244222e-09};
  constexpr double kTail[] = {2.9533017144257854,    1.003647808788895,      0.007129219364700117,
                              -0.005377232209697363, 0.0038446438438899514,  -0.0025608372657527144,
                              0.0013228915967824738, -0.0003153581278778572, -0.0001801904966120262,
                              0.00012873813134463218};
  const double rest = (1 - x) * (1 + x);
  const double w = -LogOf(rest);
  const double slope =
      w < 5 ? Polynomial(kCentre, w - 2.5) : Polynomial(kTail, __builtin_sqrt(w) - 3.12);
  return rest > 0 ? x * slope : rest == 0 ? WithSign(kInfinite, x) : kNaN;
}

}  // namespace

VPOD_VECTOR_FUNCTION(ErfInv, double, ErfInvOf(x))
VPOD_VECTOR_FUNCTION(Asin, double, AsinOf(x))
VPOD_VECTOR_FUNCTION(Acos, double, AcosOf(x))
VPOD_VECTOR_FUNCTION(Atan, double, x != x ? x : WithSign(FirstAngle(Size(x), 1), x))
VPOD_VECTOR_FUNCTION(Sinh, double, SinhOf(x))
VPOD_VECTOR_FUNCTION(Cosh, double, CoshOf(x))
VPOD_VECTOR_FUNCTION(Asinh, double, AsinhOf(x))
VPOD_VECTOR_FUNCTION(Acosh, double, AcoshOf(x))
VPOD_VECTOR_FUNCTION(Atanh, double, AtanhOf(x))
VPOD_VECTOR_FUNCTION(Expm1, double, WithSign(Expm1Of(x), x))
VPOD_VECTOR_FUNCTION(Log1p, double,
                     x > -1    ? (x == kInfinite ? x : WithSign(Log1pOf(x), x))
                     : x == -1 ? -kInfinite
                               : kNaN)

void Sin(const float* in, float* out, size_t n) {
  WithLarge(in, out, n, SinOfReduced, [](float x) { return ReduceLarge(x).Sin(); });
}
void Cos(const float* in, float* out, size_t n) {
  WithLarge(in, out, n, CosOfReduced, [](float x) {
    const Angle angle = ReduceLarge(x);
    return Angle{angle.quarters + 1, angle.rest}.Sin();
  });
}
void Tan(const float* in, float* out, size_t n) {
  WithLarge(in, out, n, TanOfReduced, [](float x) { return ReduceLarge(x).Tan(); });
}

VPOD_SIMD void Power(const float* a, const float* b, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(PowerOf(a[i], b[i]));
}
VPOD_SIMD void Atan2(const float* a, const float* b, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(Atan2Of(a[i], b[i]));
}

double Log(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinite : kNaN;
  if (x == kInfinite) return x;
  if (x < std::numeric_limits<double>::min()) return LogOf(x * 0x1p52) - 52 * std::numbers::ln2;
  return LogOf(x);
}

double Exp(double x) {
  if (x != x) return x;
  if (x < -708) return 0;
  return x > 709 ? kInfinite : ExpOf(x);
}

double Power(double base, double exponent) { return exponent == 0 ? 1 : Exp(exponent * Log(base)); }

SinCos SinCosOfTurn(uint32_t part) {
  constexpr uint32_t kEighth = uint32_t{1} << 29;
  const uint32_t quarters = (part + kEighth) >> 30;
  const double turns = 0x1p-32 * static_cast<double>(static_cast<int32_t>(part - (quarters << 30)));
  const double rest = 2 * kPi * turns;
  return {Angle{quarters, rest}.Sin(), Angle{quarters + 1, rest}.Sin()};
}

}  // namespace vpod::engine
