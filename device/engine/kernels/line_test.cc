// Cumulative sums and products, and sorting.
#include <algorithm>
#include <numeric>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

TEST(CumulateTest, AddsAndMultipliesAlongAnAxis) {
  const struct {
    const char* attributes;
    Values expected;
  } kCases[] = {{"operator:SUM axis:1", {1, 3, 6, 4, 9, 15}},
                {"operator:SUM axis:0", {1, 2, 3, 5, 7, 9}},
                {"operator:PRODUCT axis:1", {1, 2, 6, 4, 20, 120}},
                {"operator:SUM axis:1 exclusive:true", {0, 1, 3, 0, 4, 9}},
                {"operator:PRODUCT axis:0 exclusive:true", {1, 1, 1, 1, 2, 3}},
                {"operator:SUM axis:1 reverse:true", {6, 5, 3, 15, 11, 6}},
                {"operator:SUM axis:0 reverse:true exclusive:true", {4, 5, 6, 0, 0, 0}}};
  for (auto type : {FLOAT32, FLOAT16, INT32}) {
    for (const auto& [attributes, expected] : kCases) {
      TestIpu ipu;
      const uint32_t x = ipu.Add(type, {2, 3}, {1, 2, 3, 4, 5, 6}), y = ipu.Add(type, {2, 3});
      ipu.Run(absl::StrCat("cumulate{", attributes, "} inputs:", x, " outputs:", y));
      EXPECT_EQ(ipu.Read(y), expected) << attributes;
    }
  }
}

// The sum is carried in float64: each half of one hundred thousand is counted.
TEST(CumulateTest, RoundsEachResultOnce) {
  constexpr int64_t kLength = 100000;
  TestIpu ipu;
  Values ones(kLength, 1);
  ones[0] = std::ldexp(1, 25);
  const uint32_t x = ipu.Add(FLOAT32, {kLength}, ones), y = ipu.Add(FLOAT32, {kLength});
  ipu.Run(absl::StrCat("cumulate{operator:SUM} inputs:", x, " outputs:", y));
  const Values sums = ipu.Read(y);
  for (int64_t i : {int64_t{1}, int64_t{77}, kLength - 1})
    EXPECT_EQ(sums[static_cast<size_t>(i)], static_cast<float>(std::ldexp(1, 25) + i));
}

TEST(CumulateTest, IntegersWrap) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(INT32, {3}, {2147483647, 2, 3}), y = ipu.Add(INT32, {3});
  ipu.Run(absl::StrCat("cumulate{operator:SUM} inputs:", x, " outputs:", y));
  EXPECT_EQ(ipu.Read(y), (Values{2147483647, -2147483647, -2147483644}));
}

// More than a round takes, and lines beside each other that fill several blocks.
TEST(CumulateTest, LongLinesGoOnInTheNextRound) {
  for (const Dims& dims : {Dims{(1 << 23) + 5}, Dims{4099, 2051}, Dims{3, 70000}}) {
    const auto elements = static_cast<size_t>(program::TensorType{FLOAT32, dims}.elements());
    const auto inner = static_cast<size_t>(dims.size() > 1 && dims[0] > 3 ? dims[1] : 1);
    const auto length = static_cast<size_t>(inner > 1 ? dims[0] : dims.back());
    Values values(elements), expected(elements);
    for (size_t i = 0; i < elements; ++i) values[i] = static_cast<double>(i % 3) - 1;
    for (size_t i = 0; i < elements; ++i) {
      const bool first = inner > 1 ? i < inner : i % length == 0;
      expected[i] = values[i] + (first ? 0 : expected[i - inner]);
    }
    TestIpu ipu;
    const uint32_t x = ipu.Add(FLOAT32, dims, values), y = ipu.Add(FLOAT32, dims);
    ipu.Run(absl::StrCat("cumulate{operator:SUM axis:", inner > 1 ? 0 : dims.size() - 1,
                         "} inputs:", x, " outputs:", y));
    EXPECT_TRUE(ipu.Read(y) == expected) << elements;
  }
}

TEST(SortTest, SortsLinesOfAnyTypeAndKeepsTheOrderOfEquals) {
  for (auto type : {FLOAT32, FLOAT16, INT8, INT16, INT32, UINT8, UINT16, UINT32}) {
    TestIpu ipu;
    const uint32_t x = ipu.Add(type, {2, 4}, {3, 1, 2, 1, 0, 9, 9, 4}),
                   values = ipu.Add(type, {2, 4}), places = ipu.Add(INT32, {2, 4});
    const std::string tensors = absl::StrCat(" inputs:", x, " outputs:[", values, ",", places, "]");
    ipu.Run(absl::StrCat("sort{axis:1 count:4}", tensors));
    EXPECT_EQ(ipu.Read(values), (Values{1, 1, 2, 3, 0, 4, 9, 9}));
    EXPECT_EQ(ipu.Read(places), (Values{1, 3, 2, 0, 0, 3, 1, 2}));
    ipu.Run(absl::StrCat("sort{axis:1 count:4 descending:true}", tensors));
    EXPECT_EQ(ipu.Read(values), (Values{3, 2, 1, 1, 9, 9, 4, 0}));
    EXPECT_EQ(ipu.Read(places), (Values{0, 2, 1, 3, 1, 2, 3, 0}));
  }
}

TEST(SortTest, NegativeNumbersComeFirstAndNotANumberLast) {
  const double nan = std::nan(""), infinity = INFINITY;
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {7}, {nan, 0, -1, infinity, -0.0, -infinity, 2}),
                 values = ipu.Add(FLOAT32, {7}), places = ipu.Add(INT32, {7});
  ipu.Run(absl::StrCat("sort{count:7} inputs:", x, " outputs:[", values, ",", places, "]"));
  EXPECT_EQ(ipu.Read(places), (Values{5, 2, 1, 4, 6, 3, 0}));
  EXPECT_TRUE(std::signbit(ipu.Read(values)[3]));
  EXPECT_TRUE(std::isnan(ipu.Read(values)[6]));
}

TEST(SortTest, GivesTheFirstOfEachLine) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(INT32, {3, 2}, {5, 1, 7, 2, 6, 0}), values = ipu.Add(INT32, {2, 2}),
                 places = ipu.Add(INT32, {2, 2});
  ipu.Run(absl::StrCat("sort{axis:0 count:2 descending:true} inputs:", x, " outputs:[", values, ",",
                       places, "]"));
  EXPECT_EQ(ipu.Read(values), (Values{7, 2, 6, 1}));
  EXPECT_EQ(ipu.Read(places), (Values{1, 1, 2, 0}));
}

// Lines of several blocks, which are merged in one, two and three steps.
TEST(SortTest, MergesLongLines) {
  std::mt19937 random(5);
  for (const Dims& dims : {Dims{2, 30000}, Dims{100000}, Dims{40000, 3}}) {
    const bool columns = dims.size() == 2 && dims[1] == 3;
    const auto elements = static_cast<size_t>(program::TensorType{FLOAT32, dims}.elements());
    const size_t length = static_cast<size_t>(columns ? dims[0] : dims.back()),
                 step = columns ? 3 : 1;
    Values input(elements), expected(elements);
    for (double& value : input) value = static_cast<double>(random() % 5000);
    for (size_t line = 0; line < elements / length; ++line) {
      const size_t first = columns ? line : line * length;
      std::vector<size_t> order(length);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return input[first + a * step] < input[first + b * step];
      });
      for (size_t i = 0; i < length; ++i)
        expected[first + i * step] = static_cast<double>(order[i]);
    }
    TestIpu ipu;
    const uint32_t x = ipu.Add(FLOAT32, dims, input), values = ipu.Add(FLOAT32, dims),
                   places = ipu.Add(INT32, dims);
    ipu.Run(absl::StrCat("sort{axis:", columns ? 0 : dims.size() - 1, " count:", length,
                         "} inputs:", x, " outputs:[", values, ",", places, "]"));
    EXPECT_TRUE(ipu.Read(places) == expected) << elements;
  }
}

}  // namespace
}  // namespace vpod::engine
