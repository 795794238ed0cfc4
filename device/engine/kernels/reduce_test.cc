#include <algorithm>
#include <limits>

#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;
using program::v1::ReduceOperator;

class ReduceTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, ReduceTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The axes whose bits are set.
std::vector<uint32_t> AxesOf(uint32_t mask) {
  std::vector<uint32_t> axes;
  for (uint32_t axis = 0; axis < 32; ++axis) {
    if (mask >> axis & 1) axes.push_back(axis);
  }
  return axes;
}

std::string Text(ReduceOperator op, uint32_t input, uint32_t output,
                 const std::vector<uint32_t>& axes) {
  return absl::StrCat("reduce{operator:", program::v1::ReduceOperator_Name(op), " axes:[",
                      absl::StrJoin(axes, ","), "]} inputs:", input, " outputs:", output);
}

struct Reference {
  Dims dims;
  Values values;
};

Reference Reduced(ReduceOperator op, const Dims& dims, const Values& values, uint32_t mask) {
  Reference result;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (!(mask >> axis & 1)) result.dims.push_back(dims[axis]);
  }
  const double initial = op == program::v1::MAX       ? -kInfinity
                         : op == program::v1::MIN     ? kInfinity
                         : op == program::v1::PRODUCT ? 1
                                                      : 0;
  result.values.assign(NumElements(result.dims), initial);
  for (size_t flat = 0; flat < values.size(); ++flat) {
    size_t rest = flat, to = 0, stride = 1;
    for (size_t axis = dims.size(); axis-- > 0;) {
      const auto length = static_cast<size_t>(dims[axis]);
      if (!(mask >> axis & 1)) {
        to += rest % length * stride;
        stride *= length;
      }
      rest /= length;
    }
    double& sum = result.values[to];
    sum = op == program::v1::MAX       ? std::max(sum, values[flat])
          : op == program::v1::MIN     ? std::min(sum, values[flat])
          : op == program::v1::PRODUCT ? sum * values[flat]
                                       : sum + values[flat];
  }
  if (op == program::v1::MEAN) {
    for (double& value : result.values) {
      value *= static_cast<double>(result.values.size()) / static_cast<double>(values.size());
    }
  }
  return result;
}

const std::vector<Dims> kShapes = {{},
                                   {1},
                                   {7},
                                   {3, 5},
                                   {1, 4},
                                   {4, 1},
                                   {2, 3, 4},
                                   {3, 1, 5},
                                   {2, 3, 2, 5},
                                   {2, 1, 3, 1, 2},
                                   {2, 2, 2, 2, 2, 2, 2, 2},
                                   {5, 70}};

TEST_P(ReduceTest, EveryChoiceOfAxes) {
  for (const Dims& dims : kShapes) {
    for (uint32_t mask = 0; mask < 1u << dims.size(); ++mask) {
      for (ReduceOperator op : {program::v1::SUM, program::v1::MEAN, program::v1::MAX,
                                program::v1::MIN, program::v1::PRODUCT}) {
        SCOPED_TRACE(absl::StrCat(Describe(FLOAT32, dims), " axes ", mask, " operator ", op));
        TestIpu ipu;
        const uint32_t x = ipu.Add(GetParam(), dims, Random(dims, 1));
        const Reference expected = Reduced(op, dims, ipu.Read(x), mask);
        const uint32_t y = ipu.Add(GetParam(), expected.dims);
        ipu.Run(Text(op, x, y, AxesOf(mask)));
        // Sums carry float64, so that only the last rounding is left; at most one unit for sums
        // taken in another order.
        ExpectClose(ipu.Read(y), expected.values, GetParam(), 1e-12, 1e-12);
      }
    }
  }
}

TEST(IntegerReduceTest, EveryChoiceOfAxes) {
  for (const Dims& dims : kShapes) {
    for (uint32_t mask = 0; mask < 1u << dims.size(); ++mask) {
      for (ReduceOperator op : {program::v1::SUM, program::v1::MAX, program::v1::MIN}) {
        TestIpu ipu;
        const Values values = RandomIntegers(dims, 2, -1000, 1000);
        const Reference expected = Reduced(op, dims, values, mask);
        const uint32_t x = ipu.Add(INT32, dims, values), y = ipu.Add(INT32, expected.dims);
        ipu.Run(Text(op, x, y, AxesOf(mask)));
        EXPECT_EQ(ipu.Read(y), expected.values) << mask << " " << op;
      }
    }
  }
}

TEST(IntegerReduceTest, SumsWrap) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(INT32, {3}, {2147483647.0, 1, 5}), y = ipu.Add(INT32, {});
  ipu.Run(Text(program::v1::SUM, x, y, {0}));
  EXPECT_EQ(ipu.Read(y), Values{-2147483643.0});
}

// Partial sums in float32 would lose bits; the kernel carries float64 along rows, columns and both.
TEST_P(ReduceTest, SumsAreRoundedOnce) {
  const double big = GetParam() == FLOAT16 ? 60000 : 1e10;
  for (uint32_t mask = 1; mask < 4; ++mask) {
    TestIpu ipu;
    const uint32_t x =
        ipu.Add(GetParam(), {3, 3}, {big, 0.25, -big, 0.25, 0.25, 0.25, -big, 0.25, big});
    const Reference expected = Reduced(program::v1::SUM, {3, 3}, ipu.Read(x), mask);
    const uint32_t y = ipu.Add(GetParam(), expected.dims);
    ipu.Run(Text(program::v1::SUM, x, y, AxesOf(mask)));
    EXPECT_EQ(ipu.Read(y), expected.values);
  }
}

TEST_P(ReduceTest, InfinitiesAndLowestNumbers) {
  TestIpu ipu;
  const double low = GetParam() == FLOAT16 ? -65504 : Round(-3.4e38, FLOAT32);
  const uint32_t x = ipu.Add(GetParam(), {2, 2}, {-kInfinity, low, -kInfinity, -kInfinity});
  const uint32_t y = ipu.Add(GetParam(), {2});
  ipu.Run(Text(program::v1::MAX, x, y, {1}));
  EXPECT_EQ(ipu.Read(y), (Values{low, -kInfinity}));
  ipu.Run(Text(program::v1::MIN, x, y, {0}));
  EXPECT_EQ(ipu.Read(y), (Values{-kInfinity, -kInfinity}));
}

TEST_P(ReduceTest, MeanOfManyElementsDoesNotOverflow) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(GetParam(), {64}, Values(64, 60000)), y = ipu.Add(GetParam(), {});
  ipu.Run(Text(program::v1::MEAN, x, y, {0}));
  EXPECT_EQ(ipu.Read(y), Values{60000});
}

Values ArgMax(DataType type, const Dims& dims, const Values& values) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(type, dims, values);
  const uint32_t y = ipu.Add(INT32, Dims(dims.begin(), dims.end() - 1));
  ipu.Run(absl::StrCat("arg_max{} inputs:", x, " outputs:", y));
  return ipu.Read(y);
}

// Broadcast inputs have steps of 0, along the axes that are kept or those that are reduced.
TEST_P(ReduceTest, ElementsThatAreOne) {
  for (const bool kept : {true, false}) {
    TestIpu ipu;
    // A row of five that is repeated three times, or a column of three.
    const Values elements = kept ? Values{1, 2, 3, 4, 5} : Values{1, 2, 3};
    const uint32_t x = ipu.Add(GetParam(), {3, 5}, {}, false, kept ? Dims{0, 1} : Dims{1, 0});
    const uint32_t columns = ipu.Add(GetParam(), {5}), rows = ipu.Add(GetParam(), {3}),
                   all = ipu.Add(GetParam(), {});
    Values repeated;
    for (size_t i = 0; i < 15; ++i) repeated.push_back(elements[kept ? i % 5 : i / 5]);
    ipu.Write(x, repeated);
    ipu.Run(Text(program::v1::SUM, x, columns, {0}));
    EXPECT_EQ(ipu.Read(columns), kept ? (Values{3, 6, 9, 12, 15}) : Values(5, 6));
    ipu.Run(Text(program::v1::SUM, x, rows, {1}));
    EXPECT_EQ(ipu.Read(rows), kept ? Values(3, 15) : (Values{5, 10, 15}));
    ipu.Run(Text(program::v1::MAX, x, rows, {1}));
    EXPECT_EQ(ipu.Read(rows), kept ? Values(3, 5) : elements);
    ipu.Run(Text(program::v1::SUM, x, all, {0, 1}));
    EXPECT_EQ(ipu.Read(all), Values{kept ? 45.0 : 30.0});
  }
}

TEST_P(ReduceTest, ArgMaxOfEachRow) {
  EXPECT_EQ(ArgMax(GetParam(), {2, 3}, {1, 3, 2, -1, -2, -3}), (Values{1, 0}));
  EXPECT_EQ(ArgMax(GetParam(), {4}, {-kInfinity, -5, 7, kInfinity}), Values{3});
  EXPECT_EQ(ArgMax(GetParam(), {2, 1, 2}, {1, 2, 4, 3}), (Values{1, 0}));
  EXPECT_EQ(ArgMax(GetParam(), {3, 1}, {1, 2, 4}), (Values{0, 0, 0}));
  const Dims dims{6, 50};
  const Values values = Random(dims, 3);
  Values expected;
  for (int row = 0; row < 6; ++row) {
    int best = 0;
    for (int i = 1; i < 50; ++i) {
      if (Round(values[row * 50 + i], GetParam()) > Round(values[row * 50 + best], GetParam())) {
        best = i;
      }
    }
    expected.push_back(best);
  }
  EXPECT_EQ(ArgMax(GetParam(), dims, values), expected);
}

TEST_P(ReduceTest, ArgMaxTakesTheFirstOfEquals) {
  EXPECT_EQ(ArgMax(GetParam(), {3, 4}, {5, 1, 5, 5, 0, 0, 0, 0, -1, 2, 2, 1}), (Values{0, 0, 1}));
}

// Their sum is beyond the largest float16.
TEST(ReduceHalvesTest, TheMeanOf256Elements) {
  for (const Dims& dims : {Dims{256}, {256, 3}, {3, 256}}) {
    TestIpu ipu;
    const uint32_t axis = dims[0] == 256 ? 0 : 1;
    const size_t results = NumElements(dims) / 256;
    const uint32_t x = ipu.Add(FLOAT16, dims, Values(NumElements(dims), 300)),
                   y = ipu.Add(FLOAT16, results == 1 ? Dims{} : Dims{3});
    ipu.Run(Text(program::v1::MEAN, x, y, {axis}));
    EXPECT_EQ(ipu.Read(y), Values(results, 300));
  }
}

}  // namespace
}  // namespace vpod::engine
