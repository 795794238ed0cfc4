// Element-by-element ops, fill and cast of integers of 8 and 16 bits: all pairs of bytes, and of
// 16 bits those at the edges.
#include <algorithm>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::BinaryOperator;
using program::v1::BinaryOperator_Name;
using program::v1::DataType;
using program::v1::DataType_Name;
using program::v1::UnaryOperator;
using program::v1::UnaryOperator_Name;

class NarrowIntegersTest : public testing::TestWithParam<DataType> {
 protected:
  // How many values the type has, and the smallest.
  double Count() const {
    return std::ldexp(1.0, 8 * static_cast<int>(program::SizeOf(GetParam())));
  }
  double Low() const { return program::IsSigned(GetParam()) ? -Count() / 2 : 0; }

  // The value of the type that is equal modulo its number of values.
  double Wrap(double value) const {
    return value - Count() * std::floor((value - Low()) / Count());
  }

  // 256 values: those of 8 bits; of 16 bits the lowest, the highest and those about zero.
  Values Interesting() const {
    Values values;
    for (int i = 0; i < 256; ++i) {
      if (Count() == 256) {
        values.push_back(Low() + i);
      } else {
        values.push_back(Wrap(i < 64 ? Low() + i : i < 128 ? Low() - 1 - (i - 64) : i - 192));
      }
    }
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(All, NarrowIntegersTest, testing::Values(INT8, UINT8, INT16, UINT16),
                         [](const testing::TestParamInfo<DataType>& info) {
                           return std::string(program::Name(info.param));
                         });

TEST_P(NarrowIntegersTest, UnaryOperatorsWrap) {
  const struct {
    UnaryOperator op;
    double (*reference)(double);
  } kCases[] = {
      {program::v1::NEGATE, [](double x) { return -x; }},
      {program::v1::ABSOLUTE, [](double x) { return std::fabs(x); }},
      {program::v1::SQUARE, [](double x) { return x * x; }},
      {program::v1::RELU, [](double x) { return std::max(x, 0.0); }},
  };
  for (const auto& [op, reference] : kCases) {
    SCOPED_TRACE(UnaryOperator_Name(op));
    TestIpu ipu;
    Values expected = Interesting();
    const uint32_t x = ipu.Add(GetParam(), {256}, expected), y = ipu.Add(GetParam(), {256});
    ipu.Run(
        absl::StrCat("unary{operator:", UnaryOperator_Name(op), "} inputs:", x, " outputs:", y));
    for (double& value : expected) value = Wrap(reference(value));
    EXPECT_EQ(ipu.Read(y), expected);
  }
}

TEST_P(NarrowIntegersTest, BinaryOperatorsWrap) {
  const struct {
    BinaryOperator op;
    double (*reference)(double, double);
  } kCases[] = {
      {program::v1::ADD, [](double a, double b) { return a + b; }},
      {program::v1::SUBTRACT, [](double a, double b) { return a - b; }},
      {program::v1::MULTIPLY, [](double a, double b) { return a * b; }},
      {program::v1::DIVIDE, [](double a, double b) { return b == 0 ? 0 : std::trunc(a / b); }},
      {program::v1::MAXIMUM, [](double a, double b) { return std::max(a, b); }},
      {program::v1::MINIMUM, [](double a, double b) { return std::min(a, b); }},
      {program::v1::EQUAL, [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {program::v1::NOT_EQUAL, [](double a, double b) { return a != b ? 1.0 : 0.0; }},
      {program::v1::LESS, [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {program::v1::GREATER_EQUAL, [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
  };
  const Values values = Interesting();
  for (const auto& [op, reference] : kCases) {
    SCOPED_TRACE(BinaryOperator_Name(op));
    const bool comparison = op >= program::v1::EQUAL && op <= program::v1::GREATER_EQUAL;
    TestIpu ipu;
    const uint32_t a = ipu.Add(GetParam(), {256, 1}, values);
    const uint32_t b = ipu.Add(GetParam(), {256}, values);
    const uint32_t y = ipu.Add(comparison ? BOOL : GetParam(), {256, 256});
    ipu.Run(absl::StrCat("binary{operator:", BinaryOperator_Name(op), "} inputs:", a, " inputs:", b,
                         " outputs:", y));
    Values expected;
    for (double left : values) {
      for (double right : values) {
        const double value = reference(left, right);
        expected.push_back(comparison ? value : Wrap(value));
      }
    }
    EXPECT_TRUE(ipu.Read(y) == expected);  // not to be printed
  }
}

Values Cast(DataType from, DataType to, const Values& values) {
  TestIpu ipu;
  const Dims dims{static_cast<int64_t>(values.size())};
  const uint32_t x = ipu.Add(from, dims, values), y = ipu.Add(to, dims);
  ipu.Run(absl::StrCat("cast{type:", DataType_Name(to), "} inputs:", x, " outputs:", y));
  return ipu.Read(y);
}

TEST_P(NarrowIntegersTest, CastsOfFloatsTruncateAndSaturate) {
  const double high = Low() + Count() - 1;
  const Values floats{1.9, Low() - 1, high + 1, -1e9, 1e9, -HUGE_VAL, HUGE_VAL, std::nan("")};
  const Values expected{1, Low(), high, Low(), high, Low(), high, 0};
  EXPECT_EQ(Cast(FLOAT32, GetParam(), floats), expected);
  const double minus_one = program::IsSigned(GetParam()) ? -1 : 0;
  EXPECT_EQ(Cast(FLOAT16, GetParam(), {-1.5, 100.75, 0, -0.5}), (Values{minus_one, 100, 0, 0}));
}

TEST_P(NarrowIntegersTest, CastsOfIntegersWrap) {
  const Values integers{0,    1,     -1,    127,   128, 255,          256,
                        -129, 32768, 65535, 65536, 1e6, -2147483648.0};
  Values expected = integers;
  for (double& value : expected) value = Wrap(value);
  EXPECT_EQ(Cast(INT32, GetParam(), integers), expected);
  const Values values = Interesting();
  EXPECT_EQ(Cast(GetParam(), INT32, values), values);
  EXPECT_EQ(Cast(GetParam(), FLOAT32, values), values);
  Values truths = values;
  for (double& value : truths) value = value == 0 ? 0 : 1;
  EXPECT_EQ(Cast(GetParam(), BOOL, values), truths);
}

TEST_P(NarrowIntegersTest, FillsWithTheFirstAndTheLastValue) {
  for (double value : {Low(), Low() + Count() - 1}) {
    TestIpu ipu;
    const uint32_t x = ipu.Add(GetParam(), {5});
    ipu.Run(absl::StrCat("fill{value:", value, "} outputs:", x));
    EXPECT_EQ(ipu.Read(x), Values(5, value));
  }
}

}  // namespace
}  // namespace vpod::engine
