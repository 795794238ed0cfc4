#include <algorithm>
#include <functional>
#include <limits>
#include <numbers>

#include "device/engine/kernels/kernel_test_util.h"
#include "device/program/ops/rules.h"

namespace vpod::engine {
namespace {

using program::v1::BinaryOperator;
using program::v1::BinaryOperator_Name;
using program::v1::DataType;
using program::v1::UnaryOperator;
using program::v1::UnaryOperator_Name;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ElementwiseTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, ElementwiseTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

std::string UnaryText(UnaryOperator op, uint32_t input, uint32_t output) {
  return absl::StrCat("unary{operator:", UnaryOperator_Name(op), "} inputs:", input,
                      " outputs:", output);
}

std::string BinaryText(BinaryOperator op, uint32_t a, uint32_t b, uint32_t output) {
  return absl::StrCat("binary{operator:", BinaryOperator_Name(op), "} inputs:", a, " inputs:", b,
                      " outputs:", output);
}

Values RunUnary(UnaryOperator op, DataType type, const Values& values) {
  TestIpu ipu;
  const Dims dims{static_cast<int64_t>(values.size())};
  const uint32_t x = ipu.Add(type, dims, values), y = ipu.Add(type, dims);
  ipu.Run(UnaryText(op, x, y));
  return ipu.Read(y);
}

Values RunBinary(BinaryOperator op, DataType type, const Values& a, const Values& b,
                 DataType result) {
  TestIpu ipu;
  const Dims dims{static_cast<int64_t>(a.size())};
  const uint32_t x = ipu.Add(type, dims, a), y = ipu.Add(type, dims, b);
  const uint32_t z = ipu.Add(result, dims);
  ipu.Run(BinaryText(op, x, y, z));
  return ipu.Read(z);
}

TEST_P(ElementwiseTest, ExactUnaryOperators) {
  const struct {
    UnaryOperator op;
    double (*reference)(double);
  } kCases[] = {
      {program::v1::NEGATE, [](double x) { return -x; }},
      {program::v1::ABSOLUTE, [](double x) { return std::fabs(x); }},
      {program::v1::SQUARE_ROOT, [](double x) { return std::sqrt(x); }},
      {program::v1::SQUARE, [](double x) { return x * x; }},
      {program::v1::RELU, [](double x) { return std::max(x, 0.0); }},
      {program::v1::RECIPROCAL, [](double x) { return 1 / x; }},
  };
  for (const auto& [op, reference] : kCases) {
    SCOPED_TRACE(UnaryOperator_Name(op));
    TestIpu ipu;
    const Dims dims{7, 11};
    const uint32_t x = ipu.Add(GetParam(), dims, Random(dims, 1)), y = ipu.Add(GetParam(), dims);
    ipu.Run(UnaryText(op, x, y));
    Values expected = ipu.Read(x);
    for (double& value : expected) value = reference(value);
    ExpectRounded(ipu.Read(y), expected, GetParam());
  }
}

// By bisection.
double InverseErf(double x) {
  double low = -6, high = 6;
  for (int i = 0; i < 64; ++i) {
    const double middle = (low + high) / 2;
    (std::erf(middle) < x ? low : high) = middle;
  }
  return low;
}

TEST_P(ElementwiseTest, InexactUnaryOperators) {
  const struct {
    UnaryOperator op;
    double (*reference)(double);
    double low, high;
  } kCases[] = {
      {program::v1::EXPONENT, [](double x) { return std::exp(x); }, -8, 8},
      {program::v1::LOGARITHM, [](double x) { return std::log(x); }, 0.01, 50},
      {program::v1::TANH, [](double x) { return std::tanh(x); }, -6, 6},
      {program::v1::SIGMOID, [](double x) { return 1 / (1 + std::exp(-x)); }, -9, 9},
      {program::v1::ERF_INV, InverseErf, -0.999, 0.999},
      {program::v1::ERF, [](double x) { return std::erf(x); }, -4, 4},
      {program::v1::SIN, [](double x) { return std::sin(x); }, -9, 9},
      {program::v1::COS, [](double x) { return std::cos(x); }, -9, 9},
      {program::v1::TAN, [](double x) { return std::tan(x); }, -1.5, 1.5},
      {program::v1::ASIN, [](double x) { return std::asin(x); }, -1, 1},
      {program::v1::ACOS, [](double x) { return std::acos(x); }, -1, 1},
      {program::v1::ATAN, [](double x) { return std::atan(x); }, -9, 9},
      {program::v1::SINH, [](double x) { return std::sinh(x); }, -5, 5},
      {program::v1::COSH, [](double x) { return std::cosh(x); }, -5, 5},
      {program::v1::ASINH, [](double x) { return std::asinh(x); }, -5, 5},
      {program::v1::ACOSH, [](double x) { return std::acosh(x); }, 1, 9},
      {program::v1::ATANH, [](double x) { return std::atanh(x); }, -0.99, 0.99},
      {program::v1::EXPM1, [](double x) { return std::expm1(x); }, -5, 5},
      {program::v1::LOG1P, [](double x) { return std::log1p(x); }, -0.9, 9},
      {program::v1::RECIPROCAL_ROOT, [](double x) { return 1 / std::sqrt(x); }, 0.01, 9},
      {program::v1::FLOOR, [](double x) { return std::floor(x); }, -5, 5},
      {program::v1::CEIL, [](double x) { return std::ceil(x); }, -5, 5},
      {program::v1::ROUND, [](double x) { return std::nearbyint(x); }, -5, 5},
      {program::v1::TRUNCATE, [](double x) { return std::trunc(x); }, -5, 5},
  };
  for (const auto& [op, reference, low, high] : kCases) {
    SCOPED_TRACE(UnaryOperator_Name(op));
    TestIpu ipu;
    const Dims dims{300};
    const uint32_t x = ipu.Add(GetParam(), dims, Random(dims, 2, low, high));
    const uint32_t y = ipu.Add(GetParam(), dims);
    ipu.Run(UnaryText(op, x, y));
    Values expected = ipu.Read(x);
    for (double& value : expected) value = reference(value);
    ExpectClose(ipu.Read(y), expected, GetParam(), 3e-7, 1e-8);
  }
}

TEST_P(ElementwiseTest, UnaryOperatorsAtTheEdges) {
  const DataType type = GetParam();
  ExpectRounded(RunUnary(program::v1::LOGARITHM, type, {0, -1, kInfinity}),
                {-kInfinity, kNan, kInfinity}, type);
  ExpectRounded(RunUnary(program::v1::SQUARE_ROOT, type, {0, -1, kInfinity}), {0, kNan, kInfinity},
                type);
  ExpectRounded(RunUnary(program::v1::RECIPROCAL, type, {0, kInfinity}), {kInfinity, 0}, type);
  ExpectRounded(RunUnary(program::v1::EXPONENT, type, {-kInfinity, 1000, -1000}), {0, kInfinity, 0},
                type);
  ExpectRounded(RunUnary(program::v1::SIGMOID, type, {-200, 200, kNan}), {0, 1, kNan}, type);
  ExpectRounded(RunUnary(program::v1::TANH, type, {-200, 200, kNan}), {-1, 1, kNan}, type);
  ExpectRounded(RunUnary(program::v1::SIGN, type, {-3, 0, 0.25, kInfinity, kNan}), {-1, 0, 1, 1, 0},
                type);
  ExpectRounded(RunUnary(program::v1::ROUND, type, {0.5, 1.5, -2.5, kNan}), {0, 2, -2, kNan}, type);
  ExpectRounded(RunUnary(program::v1::ERF_INV, type, {-1, 1, 0, 1.5, -kInfinity, kNan}),
                {-kInfinity, kInfinity, 0, kNan, kNan, kNan}, type);
}

// Its tail is a function of its own, and ends at the last number below 1.
TEST_P(ElementwiseTest, InverseErfIsAccurateUpToOne) {
  Values x, expected;
  const int bits = GetParam() == FLOAT16 ? 11 : 24;
  for (int i = 1; i <= bits; ++i) {
    for (double sign : {-1.0, 1.0}) {
      x.push_back(sign * (1 - std::ldexp(1, -i)));
      expected.push_back(InverseErf(x.back()));
    }
  }
  x.push_back(std::ldexp(1, -20));
  expected.push_back(x.back() * std::sqrt(std::numbers::pi) / 2);
  ExpectClose(RunUnary(program::v1::ERF_INV, GetParam(), x), expected, GetParam(), 1.2e-7, 0);
}

TEST_P(ElementwiseTest, ExactBinaryOperators) {
  const struct {
    BinaryOperator op;
    double (*reference)(double, double);
  } kCases[] = {
      {program::v1::ADD, [](double a, double b) { return a + b; }},
      {program::v1::SUBTRACT, [](double a, double b) { return a - b; }},
      {program::v1::MULTIPLY, [](double a, double b) { return a * b; }},
      {program::v1::DIVIDE, [](double a, double b) { return a / b; }},
      {program::v1::MAXIMUM, [](double a, double b) { return std::max(a, b); }},
      {program::v1::MINIMUM, [](double a, double b) { return std::min(a, b); }},
      {program::v1::RELU_GRADIENT, [](double a, double b) { return a <= 0 ? 0 : b; }},
      {program::v1::RELU6_GRADIENT, [](double a, double b) { return a <= 0 || a >= 6 ? 0 : b; }},
  };
  for (const auto& [op, reference] : kCases) {
    SCOPED_TRACE(BinaryOperator_Name(op));
    TestIpu ipu;
    const Dims dims{13, 5};
    const uint32_t a = ipu.Add(GetParam(), dims, Random(dims, 3));
    const uint32_t b = ipu.Add(GetParam(), dims, Random(dims, 4));
    const uint32_t y = ipu.Add(GetParam(), dims);
    ipu.Run(BinaryText(op, a, b, y));
    const Values left = ipu.Read(a), right = ipu.Read(b);
    Values expected(left.size());
    std::transform(left.begin(), left.end(), right.begin(), expected.begin(), reference);
    ExpectRounded(ipu.Read(y), expected, GetParam());
  }
}

TEST_P(ElementwiseTest, GradientsOfTanhAndSigmoid) {
  TestIpu ipu;
  const Dims dims{67};
  const uint32_t a = ipu.Add(GetParam(), dims, Random(dims, 5, 0, 1));
  const uint32_t b = ipu.Add(GetParam(), dims, Random(dims, 6));
  const uint32_t tanh = ipu.Add(GetParam(), dims), sigmoid = ipu.Add(GetParam(), dims);
  ipu.Run(BinaryText(program::v1::TANH_GRADIENT, a, b, tanh));
  ipu.Run(BinaryText(program::v1::SIGMOID_GRADIENT, a, b, sigmoid));
  const Values y = ipu.Read(a), dy = ipu.Read(b);
  Values of_tanh, of_sigmoid;
  for (size_t i = 0; i < y.size(); ++i) {
    of_tanh.push_back((1 - y[i] * y[i]) * dy[i]);
    of_sigmoid.push_back(y[i] * (1 - y[i]) * dy[i]);
  }
  ExpectClose(ipu.Read(tanh), of_tanh, GetParam());
  ExpectClose(ipu.Read(sigmoid), of_sigmoid, GetParam());
}

// Channels lie side by side, so that each image repeats a short row of its own.
TEST_P(ElementwiseTest, EachImageHasItsFactors) {
  TestIpu ipu;
  const Dims dims{3, 24, 30, 31}, of_factors{3, 24, 1, 1};
  const uint32_t x = ipu.AddImage(GetParam(), dims, Random(dims, 5)),
                 factors = ipu.AddImage(GetParam(), of_factors, Random(of_factors, 6)),
                 y = ipu.AddImage(GetParam(), dims);
  for (const auto& [a, b] : {std::pair(x, factors), {factors, x}}) {
    ipu.Run(BinaryText(program::v1::MULTIPLY, a, b, y));
    const Values left = ipu.Read(x), right = ipu.Read(factors);
    Values expected;
    for (size_t i = 0; i < left.size(); ++i) expected.push_back(left[i] * right[i / (30 * 31)]);
    ExpectRounded(ipu.Read(y), expected, GetParam());
  }
}

TEST_P(ElementwiseTest, DivisionByZeroFollowsTheFloats) {
  ExpectRounded(RunBinary(program::v1::DIVIDE, GetParam(), {1, -1, 0}, {0, 0, 0}, GetParam()),
                {kInfinity, -kInfinity, kNan}, GetParam());
}

TEST_P(ElementwiseTest, ComparisonsOfFloats) {
  const Values a{1, 2, 3, kNan, kNan, kInfinity}, b{2, 2, 2, 1, kNan, kInfinity};
  const auto run = [&](BinaryOperator op) { return RunBinary(op, GetParam(), a, b, BOOL); };
  EXPECT_EQ(run(program::v1::EQUAL), (Values{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(run(program::v1::NOT_EQUAL), (Values{1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(run(program::v1::LESS), (Values{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(run(program::v1::LESS_EQUAL), (Values{1, 1, 0, 0, 0, 1}));
  EXPECT_EQ(run(program::v1::GREATER), (Values{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(run(program::v1::GREATER_EQUAL), (Values{0, 1, 1, 0, 0, 1}));
}

// Flat index in `operand`, broadcast to `result`, of the element at `flat` of the result.
size_t BroadcastIndex(const Dims& operand, const Dims& result, size_t flat) {
  size_t index = 0, stride = 1;
  for (size_t i = 0; i < result.size(); ++i) {
    const auto length = static_cast<size_t>(result[result.size() - 1 - i]);
    const size_t at = flat % length;
    flat /= length;
    if (i >= operand.size()) continue;
    const auto own = static_cast<size_t>(operand[operand.size() - 1 - i]);
    if (own != 1) index += at * stride;
    stride *= own;
  }
  return index;
}

// Shapes that broadcast at the inside, outside, in the middle, on both sides, by rank, and not at
// all.
const std::vector<std::pair<Dims, Dims>> kShapes = {
    {{}, {}},
    {{1}, {}},
    {{1, 1}, {1}},
    {{5}, {}},
    {{5}, {1}},
    {{3, 4}, {3, 4}},
    {{3, 4}, {4}},
    {{3, 4}, {1, 4}},
    {{3, 4}, {3, 1}},
    {{3, 4}, {1, 1}},
    {{3, 1}, {1, 4}},
    {{2, 3, 4}, {3, 1}},
    {{2, 3, 4}, {2, 1, 4}},
    {{2, 3, 4}, {1, 3, 1}},
    {{2, 1, 4}, {3, 1}},
    {{2, 3, 1}, {1, 1, 4}},
    {{2, 1, 3, 1, 2}, {2, 4, 1, 5, 2}},
    {{1, 2, 1, 3, 1, 2, 1, 3}, {2, 1, 2, 1, 2, 1, 2, 1}},
    {{2, 2, 2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2, 2, 2}},
    {{1, 70}, {3, 1}},
    {{4, 1, 1, 33}, {5, 1, 33}},
    {{6, 1, 5}, {6, 7, 5}},
};

template <class Check>
void ForShapes(const Check& check) {
  for (const auto& [a, b] : kShapes) {
    for (bool swapped : {false, true}) {
      const Dims& left = swapped ? b : a;
      const Dims& right = swapped ? a : b;
      SCOPED_TRACE(absl::StrCat(Describe(FLOAT32, left), " and ", Describe(FLOAT32, right)));
      check(left, right, *program::BroadcastDims(left, right));
    }
  }
}

// SUBTRACT is not symmetric: operands taken for each other show.
TEST_P(ElementwiseTest, BroadcastsLikeNumPy) {
  ForShapes([&](const Dims& left, const Dims& right, const Dims& result) {
    TestIpu ipu;
    const uint32_t a = ipu.Add(GetParam(), left, Random(left, 7));
    const uint32_t b = ipu.Add(GetParam(), right, Random(right, 8));
    const uint32_t y = ipu.Add(GetParam(), result), less = ipu.Add(BOOL, result);
    ipu.Run(BinaryText(program::v1::SUBTRACT, a, b, y));
    ipu.Run(BinaryText(program::v1::LESS, a, b, less));
    const Values x = ipu.Read(a), z = ipu.Read(b);
    Values difference(NumElements(result)), smaller(NumElements(result));
    for (size_t i = 0; i < difference.size(); ++i) {
      const double from = x[BroadcastIndex(left, result, i)];
      const double minus = z[BroadcastIndex(right, result, i)];
      difference[i] = from - minus;
      smaller[i] = from < minus;
    }
    ExpectRounded(ipu.Read(y), difference, GetParam());
    EXPECT_EQ(ipu.Read(less), smaller);
  });
}

TEST(IntegerElementwiseTest, BroadcastsLikeNumPy) {
  ForShapes([&](const Dims& left, const Dims& right, const Dims& result) {
    TestIpu ipu;
    const Values x = RandomIntegers(left, 9, 0, 9), z = RandomIntegers(right, 10, 0, 9);
    const uint32_t a = ipu.Add(UINT32, left, x), b = ipu.Add(UINT32, right, z);
    const uint32_t y = ipu.Add(UINT32, result);
    ipu.Run(BinaryText(program::v1::SUBTRACT, a, b, y));
    Values expected(NumElements(result));
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference =
          x[BroadcastIndex(left, result, i)] - z[BroadcastIndex(right, result, i)];
      expected[i] = difference < 0 ? difference + 4294967296.0 : difference;
    }
    EXPECT_EQ(ipu.Read(y), expected);
  });
}

// --- Select ---

std::string SelectText(uint32_t condition, uint32_t a, uint32_t b, uint32_t output) {
  return absl::StrCat("select{} inputs:", condition, " inputs:", a, " inputs:", b,
                      " outputs:", output);
}

void ExpectSelects(DataType type, const Dims& condition, const Dims& left, const Dims& right,
                   const Dims& result) {
  TestIpu ipu;
  // Distinct values that every type but BOOL holds.
  const Values choice = RandomIntegers(condition, 13, 0, 1);
  const uint32_t c = ipu.AddImage(BOOL, condition, choice);
  const uint32_t a = ipu.AddImage(type, left, RandomIntegers(left, 14, 0, 63));
  const uint32_t b = ipu.Add(type, right, RandomIntegers(right, 15, 64, 127));
  const uint32_t y = ipu.AddImage(type, result);
  ipu.Run(SelectText(c, a, b, y));
  const Values x = ipu.Read(a), z = ipu.Read(b);
  Values expected(NumElements(result));
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = choice[BroadcastIndex(condition, result, i)] != 0
                      ? x[BroadcastIndex(left, result, i)]
                      : z[BroadcastIndex(right, result, i)];
  }
  EXPECT_EQ(ipu.Read(y), expected);
}

class SelectTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, SelectTest,
                         testing::Values(FLOAT32, FLOAT16, INT8, INT16, INT32, UINT8, UINT16,
                                         UINT32),
                         [](const testing::TestParamInfo<DataType>& info) {
                           return std::string(program::Name(info.param));
                         });

TEST_P(SelectTest, BroadcastsAllThreeOperands) {
  ForShapes([&](const Dims& left, const Dims& right, const Dims& result) {
    ExpectSelects(GetParam(), left, right, {}, result);
    ExpectSelects(GetParam(), {}, left, right, result);
    ExpectSelects(GetParam(), result, left, right, result);
    ExpectSelects(GetParam(), left, result, right, result);
  });
  ExpectSelects(GetParam(), {3, 1, 5}, {2, 1, 4, 1}, {5}, {2, 3, 4, 5});
}

TEST_P(SelectTest, ManyElements) {
  ExpectSelects(GetParam(), {67, 4999}, {67, 4999}, {4999}, {67, 4999});
}

TEST_P(SelectTest, OutputMayBeAnInput) {
  TestIpu ipu;
  const uint32_t c = ipu.Add(BOOL, {3}, {1, 0, 1});
  const uint32_t a = ipu.Add(GetParam(), {3}, {1, 2, 3}), b = ipu.Add(GetParam(), {3}, {4, 5, 6});
  ipu.Run(SelectText(c, a, b, a));
  EXPECT_EQ(ipu.Read(a), (Values{1, 5, 3}));
  ipu.Run(SelectText(c, a, b, b));
  EXPECT_EQ(ipu.Read(b), (Values{1, 5, 3}));
}

// An element that is not chosen has no influence, as it would have in a product with 0.
TEST_P(ElementwiseTest, SelectTakesNothingOfTheOtherOperand) {
  TestIpu ipu;
  const uint32_t c = ipu.Add(BOOL, {4}, {1, 0, 1, 0});
  const uint32_t a = ipu.Add(GetParam(), {4}, {1, kNan, kInfinity, kInfinity});
  const uint32_t b = ipu.Add(GetParam(), {4}, {kNan, 2, kNan, -kInfinity});
  const uint32_t y = ipu.Add(GetParam(), {4});
  ipu.Run(SelectText(c, a, b, y));
  EXPECT_EQ(ipu.Read(y), (Values{1, 2, kInfinity, -kInfinity}));
}

TEST(LogicalElementwiseTest, SelectsBoolsByAnyByteThatIsNotZero) {
  TestIpu ipu;
  const uint32_t c = ipu.Add(BOOL, {4}, {2, 255, 0, 0});
  const uint32_t a = ipu.Add(BOOL, {4}, {1, 0, 1, 0}), b = ipu.Add(BOOL, {4}, {0, 1, 0, 1});
  const uint32_t y = ipu.Add(BOOL, {4});
  ipu.Run(SelectText(c, a, b, y));
  EXPECT_EQ(ipu.Read(y), (Values{1, 0, 0, 1}));
}

// As in PyTorch: only inputs that are known not to be positive stop it.
TEST_P(ElementwiseTest, GradientGoesThroughReluOfNotANumber) {
  TestIpu ipu;
  const uint32_t y = ipu.Add(GetParam(), {4}, {kNan, 0, -0.0, 1});
  const uint32_t dy = ipu.Add(GetParam(), {4}, {2, 3, 4, 5});
  const uint32_t dx = ipu.Add(GetParam(), {4});
  ipu.Run(BinaryText(program::v1::RELU_GRADIENT, y, dy, dx));
  EXPECT_EQ(ipu.Read(dx), (Values{2, 0, 0, 5}));
}

// The vectorised loops have tails of every length.
TEST_P(ElementwiseTest, EveryLengthOfARow) {
  for (int64_t length = 1; length <= 70; ++length) {
    TestIpu ipu;
    const uint32_t a = ipu.Add(GetParam(), {length}, Random({length}, 11));
    const uint32_t b = ipu.Add(GetParam(), {length}, Random({length}, 12));
    const uint32_t relu = ipu.Add(GetParam(), {length}), sum = ipu.Add(GetParam(), {length});
    ipu.Run(UnaryText(program::v1::RELU, a, relu));
    ipu.Run(BinaryText(program::v1::ADD, a, b, sum));
    const Values x = ipu.Read(a), y = ipu.Read(b);
    Values positive, added;
    for (size_t i = 0; i < x.size(); ++i) {
      positive.push_back(std::max(x[i], 0.0));
      added.push_back(x[i] + y[i]);
    }
    ExpectRounded(ipu.Read(relu), positive, GetParam());
    ExpectRounded(ipu.Read(sum), added, GetParam());
  }
}

TEST_P(ElementwiseTest, OutputMayBeAnInput) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(GetParam(), {3}, {1, -2, 3});
  const uint32_t y = ipu.Add(GetParam(), {3}, {4, 5, 6});
  ipu.Run(BinaryText(program::v1::SUBTRACT, x, y, x));
  EXPECT_EQ(ipu.Read(x), (Values{-3, -7, -3}));
  ipu.Run(BinaryText(program::v1::SUBTRACT, y, x, x));
  EXPECT_EQ(ipu.Read(x), (Values{7, 12, 9}));
  ipu.Run(UnaryText(program::v1::NEGATE, x, x));
  EXPECT_EQ(ipu.Read(x), (Values{-7, -12, -9}));
}

constexpr double kMin = -2147483648.0, kMax = 2147483647.0;

TEST(IntegerElementwiseTest, UnaryOperatorsWrap) {
  EXPECT_EQ(RunUnary(program::v1::NEGATE, INT32, {5, kMin, kMax}), (Values{-5, kMin, -kMax}));
  EXPECT_EQ(RunUnary(program::v1::ABSOLUTE, INT32, {-5, kMin, kMax}), (Values{5, kMin, kMax}));
  EXPECT_EQ(RunUnary(program::v1::SQUARE, INT32, {-5, 65536, 46341}),
            (Values{25, 0, 2147488281.0 - 4294967296.0}));
  EXPECT_EQ(RunUnary(program::v1::RELU, INT32, {-5, 0, 7, kMin}), (Values{0, 0, 7, 0}));
}

TEST(IntegerElementwiseTest, SignedArithmeticWraps) {
  const auto run = [](BinaryOperator op, const Values& a, const Values& b) {
    return RunBinary(op, INT32, a, b, INT32);
  };
  EXPECT_EQ(run(program::v1::ADD, {kMax, kMin, 2}, {1, -1, 3}), (Values{kMin, kMax, 5}));
  EXPECT_EQ(run(program::v1::SUBTRACT, {kMin, 2}, {1, 3}), (Values{kMax, -1}));
  EXPECT_EQ(run(program::v1::MULTIPLY, {65536, kMin, -3}, {65536, -1, 4}), (Values{0, kMin, -12}));
  EXPECT_EQ(run(program::v1::MAXIMUM, {kMin, 3}, {kMax, -3}), (Values{kMax, 3}));
  EXPECT_EQ(run(program::v1::MINIMUM, {kMin, 3}, {kMax, -3}), (Values{kMin, -3}));
}

TEST(IntegerElementwiseTest, DivisionTruncatesAndByZeroGivesZero) {
  EXPECT_EQ(
      RunBinary(program::v1::DIVIDE, INT32, {7, -7, 7, 5, kMin, kMin}, {2, 2, -2, 0, 0, -1}, INT32),
      (Values{3, -3, -3, 0, 0, kMin}));
  EXPECT_EQ(RunBinary(program::v1::DIVIDE, UINT32, {7, 4294967295.0, 9}, {2, 1, 0}, UINT32),
            (Values{3, 4294967295.0, 0}));
}

TEST(IntegerElementwiseTest, UnsignedArithmeticAndOrder) {
  const double most = 4294967295.0;
  const auto run = [](BinaryOperator op, const Values& a, const Values& b, DataType result) {
    return RunBinary(op, UINT32, a, b, result);
  };
  EXPECT_EQ(run(program::v1::ADD, {most}, {2}, UINT32), Values{1});
  EXPECT_EQ(run(program::v1::MULTIPLY, {most}, {most}, UINT32), Values{1});
  EXPECT_EQ(run(program::v1::MAXIMUM, {most}, {1}, UINT32), Values{most});
  EXPECT_EQ(run(program::v1::LESS, {most, 1}, {1, most}, BOOL), (Values{0, 1}));
  EXPECT_EQ(RunBinary(program::v1::LESS, INT32, {-1, 1}, {1, -1}, BOOL), (Values{1, 0}));
  EXPECT_EQ(RunBinary(program::v1::GREATER_EQUAL, INT32, {3, 1}, {3, 2}, BOOL), (Values{1, 0}));
}

TEST(LogicalElementwiseTest, TruthTables) {
  const Values a{0, 0, 1, 1}, b{0, 1, 0, 1};
  EXPECT_EQ(RunBinary(program::v1::LOGICAL_AND, BOOL, a, b, BOOL), (Values{0, 0, 0, 1}));
  EXPECT_EQ(RunBinary(program::v1::LOGICAL_OR, BOOL, a, b, BOOL), (Values{0, 1, 1, 1}));
  EXPECT_EQ(RunUnary(program::v1::LOGICAL_NOT, BOOL, b), (Values{1, 0, 1, 0}));
}

// The host may stream any byte into a bool; results are 0 or 1 nevertheless.
TEST(LogicalElementwiseTest, OtherBytesCountAsTrue) {
  EXPECT_EQ(RunBinary(program::v1::LOGICAL_AND, BOOL, {2, 255}, {4, 0}, BOOL), (Values{1, 0}));
  EXPECT_EQ(RunBinary(program::v1::LOGICAL_OR, BOOL, {2, 0}, {0, 0}, BOOL), (Values{1, 0}));
  EXPECT_EQ(RunUnary(program::v1::LOGICAL_NOT, BOOL, {2, 0}), (Values{0, 1}));
}

// The kernels implement every operator that the type rules allow; they end the process for another.
TEST(ElementwiseOperatorsTest, AllOfTheTypeRulesAreImplemented) {
  for (int type = 1; type <= program::v1::DataType_MAX; ++type) {
    const program::TensorType operand{static_cast<DataType>(type), {3}};
    const Values values = {1, 0, 1};
    for (int op = 1; op <= program::v1::UnaryOperator_MAX; ++op) {
      const auto result = program::UnaryType(static_cast<UnaryOperator>(op), operand);
      if (!result.ok()) continue;
      TestIpu ipu;
      const uint32_t x = ipu.Add(operand.type, {3}, values), y = ipu.Add(result->type, {3});
      ipu.Run(UnaryText(static_cast<UnaryOperator>(op), x, y));
    }
    for (int op = 1; op <= program::v1::BinaryOperator_MAX; ++op) {
      const auto result = program::BinaryType(static_cast<BinaryOperator>(op), operand, operand);
      if (!result.ok()) continue;
      TestIpu ipu;
      const uint32_t x = ipu.Add(operand.type, {3}, values), y = ipu.Add(result->type, {3});
      ipu.Run(BinaryText(static_cast<BinaryOperator>(op), x, x, y));
    }
  }
}

}  // namespace
}  // namespace vpod::engine
