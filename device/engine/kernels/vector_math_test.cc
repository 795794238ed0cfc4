#include "device/engine/kernels/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace vpod::engine {
namespace {

// In units in the last place of a float32; infinite if only one of the two is a number.
double ErrorOf(float result, double exact) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(exact) || std::isnan(result))
    return std::isnan(exact) == std::isnan(result) ? 0 : kInfinity;
  const auto rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(result)) return rounded == result ? 0 : kInfinity;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(result - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

struct Function {
  const char* name;
  void (*function)(const float*, float*, size_t);
  double (*exact)(double);
  double error;   // the largest, in units in the last place
  uint64_t bits;  // a hash of all results
};

class VectorMathTest : public ::testing::TestWithParam<Function> {};

INSTANTIATE_TEST_SUITE_P(
    Functions, VectorMathTest,
    ::testing::Values(
        Function{"Exp", Exp, [](double x) { return std::exp(x); }, 1.0, 0x5b6d2b75c74cf8a6},
        Function{"Log", Log, [](double x) { return std::log(x); }, 0.9, 0xa6e380c640fffb10},
        Function{"Tanh", Tanh, [](double x) { return std::tanh(x); }, 1.4, 0x41260c3660268396},
        Function{"Sigmoid", Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.8,
                 0xd2588db9f4d0a51e},
        Function{"Silu", Silu, [](double x) { return x / (1 + std::exp(-x)); }, 2.9,
                 0x1eb06ea7109f6351},
        Function{"Erf", Erf, [](double x) { return std::erf(x); }, 1.1, 0x99a5a5ac5ee80a0d},
        Function{"Sin", Sin, [](double x) { return std::sin(x); }, 0.6, 0x8b5d6dbdeb4cd6aa},
        Function{"Cos", Cos, [](double x) { return std::cos(x); }, 0.6, 0x4c0ab8855aa7fd9e},
        Function{"Tan", Tan, [](double x) { return std::tan(x); }, 0.6, 0x8a09456cd5b2c1f8},
        Function{"Asin", Asin, [](double x) { return std::asin(x); }, 0.6, 0xb045ee20aaf61e37},
        Function{"Acos", Acos, [](double x) { return std::acos(x); }, 0.6, 0x168c7836ca5939ed},
        Function{"Atan", Atan, [](double x) { return std::atan(x); }, 0.6, 0xa8db4fc8d732a0d7},
        Function{"Sinh", Sinh, [](double x) { return std::sinh(x); }, 0.6, 0x98f344e9ad9864b8},
        Function{"Cosh", Cosh, [](double x) { return std::cosh(x); }, 0.6, 0x22a4f32f44f82833},
        Function{"Asinh", Asinh, [](double x) { return std::asinh(x); }, 0.6, 0xf02178bed7f6ad1e},
        Function{"Acosh", Acosh, [](double x) { return std::acosh(x); }, 0.6, 0xf15be9b5bd2ce779},
        Function{"Atanh", Atanh, [](double x) { return std::atanh(x); }, 0.6, 0x755de68f548c1e3},
        Function{"Expm1", Expm1, [](double x) { return std::expm1(x); }, 0.6, 0x6db59c3c4f439359},
        Function{"Log1p", Log1p, [](double x) { return std::log1p(x); }, 0.6, 0x58c88c38a5850582},
        Function{"Floor", Floor, [](double x) { return std::floor(x); }, 0, 0x967feda4f11284fa},
        Function{"Ceil", Ceil, [](double x) { return std::ceil(x); }, 0, 0x1e2950329710288a},
        Function{"Round", Round, [](double x) { return std::nearbyint(x); }, 0, 0xfdd1876f002b89ba},
        Function{"Truncate", Truncate, [](double x) { return std::trunc(x); }, 0,
                 0x30945ba05012f922}),
    [](const auto& info) { return info.param.name; });

// Numbers over the whole range of float32, with all kinds of NaN and infinity. The hash says that
// this processor, at whatever level and compiled with whatever sanitizer, gives the bits of those
// on which the test was written.
TEST_P(VectorMathTest, IsExactAndTheSameEverywhere) {
  constexpr uint32_t kStep = 1021, kBlock = 4096;
  std::vector<float> x(kBlock), y(kBlock);
  double worst = 0;
  float at = 0;
  uint64_t hash = 0;
  uint64_t bits = 0;
  while (bits <= UINT32_MAX) {
    for (float& each : x) {
      each = std::bit_cast<float>(static_cast<uint32_t>(bits));
      bits += kStep;
    }
    GetParam().function(x.data(), y.data(), kBlock);
    for (size_t i = 0; i < kBlock; ++i) {
      const double error = ErrorOf(y[i], GetParam().exact(x[i]));
      if (error > worst) {
        worst = error;
        at = x[i];
      }
      const uint32_t result = std::isnan(y[i]) ? 0x7fc00000 : std::bit_cast<uint32_t>(y[i]);
      hash = (hash ^ result) * 0x100000001b3;
    }
  }
  EXPECT_LE(worst, GetParam().error) << "at " << at;
  EXPECT_EQ(hash, GetParam().bits) << std::hex << hash;
}

TEST_P(VectorMathTest, WorksInPlaceAndOnAnyNumber) {
  constexpr size_t kNumber = 67;
  std::vector<float> x(kNumber), y(kNumber);
  for (size_t i = 0; i < kNumber; ++i) x[i] = 0.1f * static_cast<float>(i) - 3;
  GetParam().function(x.data(), y.data(), kNumber);
  for (size_t i = 0; i < kNumber; ++i) {
    float one = x[i];
    GetParam().function(&one, &one, 1);
    EXPECT_EQ(std::bit_cast<uint32_t>(one), std::bit_cast<uint32_t>(y[i])) << x[i];
  }
}

TEST(VectorMathTest, ZeroKeepsItsSign) {
  for (const auto function : {Tanh, Erf, ErfInv, Sin, Tan, Asin, Atan, Sinh, Asinh, Atanh, Expm1,
                              Log1p, Floor, Ceil, Round, Truncate}) {
    float x = -0.0f;
    function(&x, &x, 1);
    EXPECT_EQ(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(-0.0f));
  }
}

// Takes all pairs of some numbers, zeros, infinities and NaN among them.
TEST(VectorMathTest, FunctionsOfTwo) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers = {0,         0.5f,         1,        2,    3,    1e-30f, 1e30f,
                                1e-45f,    3.4e38f,      16777215, 0.3f, 1.7f, 12.5f,  40,
                                kInfinity, std::nanf("")};
  for (size_t i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  for (float a : numbers) {
    for (float b : numbers) {
      float power = 0, angle = 0;
      Power(&a, &b, &power, 1);
      Atan2(&a, &b, &angle, 1);
      EXPECT_LE(ErrorOf(power, std::pow(double{a}, double{b})), 0.6) << a << " to " << b;
      EXPECT_LE(ErrorOf(angle, std::atan2(double{a}, double{b})), 0.6) << a << " over " << b;
    }
  }
}

TEST(VectorMathTest, DoubleFunctions) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double x : {1e-320, 1e-300, 0.3, 0.999, 1.0, 1.5, 7.0, 1e10, 1e300}) {
    EXPECT_NEAR(Log(x), std::log(x), 1e-12 * std::max(1.0, std::fabs(std::log(x))));
    EXPECT_NEAR(Power(0.9, x), std::pow(0.9, x), 1e-12);
  }
  EXPECT_EQ(Log(0.0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  for (double x = -700; x < 700; x += 0.37) EXPECT_NEAR(Exp(x) / std::exp(x), 1, 1e-13) << x;
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
  EXPECT_EQ(Power(0, 3), 0);
  EXPECT_EQ(Power(0, 0), 1);
  for (uint64_t part = 0; part <= UINT32_MAX; part += 12345677) {
    const SinCos result = SinCosOfTurn(static_cast<uint32_t>(part));
    const double angle = 2 * std::numbers::pi * static_cast<double>(part) * 0x1p-32;
    EXPECT_NEAR(result.sin, std::sin(angle), 1e-13);
    EXPECT_NEAR(result.cos, std::cos(angle), 1e-13);
  }
}

}  // namespace
}  // namespace vpod::engine
