// Fill, copy and cast.
#include <limits>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInt32Min = -2147483648.0, kInt32Max = 2147483647.0, kUint32Max = 4294967295.0;

Values Cast(DataType from, DataType to, const Values& values) {
  TestIpu ipu;
  const Dims dims{static_cast<int64_t>(values.size())};
  const uint32_t x = ipu.Add(from, dims, values), y = ipu.Add(to, dims);
  ipu.Run(
      absl::StrCat("cast{type:", program::v1::DataType_Name(to), "} inputs:", x, " outputs:", y));
  return ipu.Read(y);
}

Values Fill(DataType type, const std::string& value, bool wide = false) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(type, {2, 3}, {}, wide);
  ipu.Run(absl::StrCat("fill{value:", value, "} outputs:", x));
  return ipu.Read(x);
}

TEST(FillTest, ElementsOfTheirOwn) {
  TestIpu ipu;
  const uint32_t floats = ipu.Add(FLOAT32, {2, 1}), halves = ipu.Add(FLOAT16, {3}),
                 bytes = ipu.Add(UINT8, {2, 2}), flags = ipu.Add(BOOL, {2});
  ipu.Run(absl::StrCat(R"(fill{elements:"\000\000\200\077\000\000\000\300"} outputs:)", floats));
  ipu.Run(absl::StrCat(R"(fill{elements:"\000\074\000\000\000\300"} outputs:)", halves));
  ipu.Run(absl::StrCat(R"(fill{elements:"\001\000\377\002"} outputs:)", bytes));
  ipu.Run(absl::StrCat(R"(fill{elements:"\001\000"} outputs:)", flags));
  EXPECT_EQ(ipu.Read(floats), (Values{1, -2}));
  EXPECT_EQ(ipu.Read(halves), (Values{1, 0, -2}));
  EXPECT_EQ(ipu.Read(bytes), (Values{1, 0, 255, 2}));
  EXPECT_EQ(ipu.Read(flags), (Values{1, 0}));
}

TEST(FillTest, SetsEveryElementOfEveryType) {
  EXPECT_EQ(Fill(FLOAT32, "-1.5"), Values(6, -1.5));
  EXPECT_EQ(Fill(FLOAT16, "0.25"), Values(6, 0.25));
  EXPECT_EQ(Fill(INT32, "-2147483648"), Values(6, kInt32Min));
  EXPECT_EQ(Fill(INT32, "2147483647"), Values(6, kInt32Max));
  EXPECT_EQ(Fill(UINT32, "4294967295"), Values(6, kUint32Max));
  EXPECT_EQ(Fill(UINT8, "255"), Values(6, 255));
  EXPECT_EQ(Fill(BOOL, "1"), Values(6, 1));
}

TEST(FillTest, RoundsOnce) {
  EXPECT_EQ(Fill(FLOAT32, "0.1"), Values(6, Round(0.1, FLOAT32)));
  EXPECT_EQ(Fill(FLOAT32, "1e300"), Values(6, kInfinity));
  EXPECT_EQ(Fill(FLOAT16, "1e6"), Values(6, kInfinity));
  // Just above the middle between 1 and the next float16: rounding to float32 first would give a
  // tie, and then 1.
  EXPECT_EQ(Fill(FLOAT16, "1.00048828126"), Values(6, 1.0009765625));
}

TEST(FillTest, WideAccumulatorsHoldDoubles) {
  EXPECT_EQ(Fill(FLOAT32, "0.1", true), Values(6, 0.1));
}

TEST(CopyTest, CopiesEveryType) {
  for (DataType type : {FLOAT32, FLOAT16, INT32, UINT32, UINT8, BOOL}) {
    TestIpu ipu;
    const Values values = RandomIntegers({2, 3, 4}, 1, 0, 1);
    const uint32_t x = ipu.Add(type, {2, 3, 4}, values), y = ipu.Add(type, {2, 3, 4});
    ipu.Run(absl::StrCat("copy{} inputs:", x, " outputs:", y));
    EXPECT_EQ(ipu.Read(y), values);
  }
}

TEST(CastTest, SmallNumbersSurviveBetweenAllTypes) {
  for (DataType from : {FLOAT32, FLOAT16, INT32, UINT32, UINT8}) {
    for (DataType to : {FLOAT32, FLOAT16, INT32, UINT32, UINT8}) {
      EXPECT_EQ(Cast(from, to, {0, 1, 2, 100, 255}), (Values{0, 1, 2, 100, 255}))
          << program::Name(from) << " to " << program::Name(to);
    }
  }
}

TEST(CastTest, FloatsTruncateTowardsZero) {
  for (DataType from : {FLOAT32, FLOAT16}) {
    EXPECT_EQ(Cast(from, INT32, {1.9, -1.9, 0.5, -0.5, 2.0}), (Values{1, -1, 0, 0, 2}));
    EXPECT_EQ(Cast(from, UINT32, {1.9, 0.5}), (Values{1, 0}));
    EXPECT_EQ(Cast(from, UINT8, {254.9, 0.5}), (Values{254, 0}));
  }
}

TEST(CastTest, FloatsSaturate) {
  EXPECT_EQ(Cast(FLOAT32, INT32, {3e9, -3e9, kInfinity, -kInfinity, 2147483648.0}),
            (Values{kInt32Max, kInt32Min, kInt32Max, kInt32Min, kInt32Max}));
  EXPECT_EQ(Cast(FLOAT32, INT32, {-2147483648.0, 2147483520.0}), (Values{kInt32Min, 2147483520.0}));
  EXPECT_EQ(Cast(FLOAT32, UINT32, {-1, 5e9, -kInfinity, kInfinity, 3e9}),
            (Values{0, kUint32Max, 0, kUint32Max, 3e9}));
  EXPECT_EQ(Cast(FLOAT32, UINT8, {-1, 256, 1e30, -0.9}), (Values{0, 255, 255, 0}));
  EXPECT_EQ(Cast(FLOAT16, INT32, {65504, kInfinity, -kInfinity}),
            (Values{65504, kInt32Max, kInt32Min}));
  EXPECT_EQ(Cast(FLOAT16, UINT8, {300, -300}), (Values{255, 0}));
}

TEST(CastTest, NotANumberBecomesZeroAsAnInteger) {
  for (DataType from : {FLOAT32, FLOAT16}) {
    for (DataType to : {INT32, UINT32, UINT8}) EXPECT_EQ(Cast(from, to, {kNan, 1}), (Values{0, 1}));
  }
}

TEST(CastTest, NotANumberAndInfinityStayAmongFloats) {
  ExpectRounded(Cast(FLOAT32, FLOAT16, {kNan, kInfinity, -kInfinity}),
                {kNan, kInfinity, -kInfinity}, FLOAT16);
  ExpectRounded(Cast(FLOAT16, FLOAT32, {kNan, kInfinity, -kInfinity}),
                {kNan, kInfinity, -kInfinity}, FLOAT32);
}

TEST(CastTest, RoundsToTheNearestEvenFloat16) {
  const double step = 1.0 / 1024;  // of float16 at 1
  EXPECT_EQ(Cast(FLOAT32, FLOAT16, {1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 1e-6}),
            (Values{1, 1 + 2 * step, 1 + step}));
  EXPECT_EQ(Cast(FLOAT32, FLOAT16, {65519, 65520, -65520}), (Values{65504, kInfinity, -kInfinity}));
  // Numbers below the normal range keep what precision is left.
  const double tiny = std::ldexp(1.0, -24);
  EXPECT_EQ(Cast(FLOAT32, FLOAT16, {tiny, tiny / 2, 2.5 * tiny}), (Values{tiny, 0, 2 * tiny}));
  EXPECT_EQ(Cast(FLOAT16, FLOAT32, {tiny, 1023 * tiny}), (Values{tiny, 1023 * tiny}));
  EXPECT_EQ(Cast(INT32, FLOAT16, {2049, 2051, -100000}), (Values{2048, 2052, -kInfinity}));
}

TEST(CastTest, IntegersRoundToFloatsAndWrapAmongThemselves) {
  EXPECT_EQ(Cast(INT32, FLOAT32, {16777217, kInt32Min}), (Values{16777216, kInt32Min}));
  EXPECT_EQ(Cast(UINT32, FLOAT32, {kUint32Max}), Values{4294967296.0});
  EXPECT_EQ(Cast(UINT32, INT32, {kUint32Max}), Values{-1});
  EXPECT_EQ(Cast(INT32, UINT32, {-1}), Values{kUint32Max});
  EXPECT_EQ(Cast(INT32, UINT8, {256, 257, -1}), (Values{0, 1, 255}));
}

TEST(CastTest, AnythingButZeroIsTrue) {
  EXPECT_EQ(Cast(FLOAT32, BOOL, {0, -0.0, 0.25, -3, kNan, 256}), (Values{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(Cast(FLOAT16, BOOL, {0, 0.25, kInfinity}), (Values{0, 1, 1}));
  EXPECT_EQ(Cast(INT32, BOOL, {0, 256, -1}), (Values{0, 1, 1}));
  EXPECT_EQ(Cast(UINT8, BOOL, {0, 2}), (Values{0, 1}));
  EXPECT_EQ(Cast(BOOL, FLOAT16, {0, 1}), (Values{0, 1}));
  EXPECT_EQ(Cast(BOOL, INT32, {0, 1}), (Values{0, 1}));
}

}  // namespace
}  // namespace vpod::engine
