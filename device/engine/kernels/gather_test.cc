#include <algorithm>

#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

std::string List(std::initializer_list<uint32_t> tensors) {
  return absl::StrCat("[", absl::StrJoin(tensors, ","), "]");
}

TEST(GatherTest, ChoosesSlicesOfAnyType) {
  for (DataType type : {FLOAT32, FLOAT16, INT8, INT16, INT32, UINT8, UINT16, UINT32}) {
    TestIpu ipu;
    const uint32_t x = ipu.Add(type, {2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
                   indices = ipu.Add(INT32, {2, 2}, {2, 0, 0, 1}), y = ipu.Add(type, {2, 2, 2, 2});
    ipu.Run(absl::StrCat("gather{axis:1} inputs:", List({x, indices}), " outputs:", y));
    EXPECT_EQ(ipu.Read(y), (Values{5, 6, 1, 2, 1, 2, 3, 4, 11, 12, 7, 8, 7, 8, 9, 10}));
  }
}

TEST(GatherTest, ChoosesAlongAnAxis) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {2, 3}, {1, 2, 3, 4, 5, 6}),
                 indices = ipu.Add(INT32, {2, 4}, {2, 0, 0, 1, 1, 1, 2, 0}),
                 y = ipu.Add(FLOAT32, {2, 4});
  ipu.Run(absl::StrCat("gather{axis:1 along:true} inputs:", List({x, indices}), " outputs:", y));
  EXPECT_EQ(ipu.Read(y), (Values{3, 1, 1, 2, 5, 5, 6, 4}));
}

TEST(GatherTest, NamesAnIndexThatDoesNotExist) {
  for (int index : {-1, 3}) {
    TestIpu ipu;
    const uint32_t x = ipu.Add(FLOAT32, {3}, {1, 2, 3}),
                   indices = ipu.Add(INT32, {2}, {1, static_cast<double>(index)}),
                   y = ipu.Add(FLOAT32, {2}, {0, 0});
    for (const std::string& step :
         {absl::StrCat("gather{} inputs:", List({x, indices}), " outputs:", y),
          absl::StrCat("scatter{combine:ADD} inputs:", List({x, indices, y}), " outputs:", x)}) {
      const absl::Status status = ipu.TryRun(step);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << step;
      EXPECT_EQ(status.message(), absl::StrCat("index ", index, " is outside 0 to 2"));
    }
  }
}

TEST(GatherTest, NamesALabelWithItsRow) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {2, 3}, {1, 2, 3, 4, 5, 6}),
                 weights = ipu.Add(FLOAT32, {3}, {1, 2, 3}),
                 labels = ipu.Add(INT32, {2, 1}, {2, 3}), y = ipu.Add(FLOAT32, {2, 1}, {0, 0});
  for (const std::string& step :
       {absl::StrCat("gather{axis:1 along:true labels:true} inputs:", List({x, labels}),
                     " outputs:", y),
        absl::StrCat("gather{labels:true} inputs:", List({weights, labels}), " outputs:", y),
        absl::StrCat("scatter{combine:SET axis:1 along:true labels:true} inputs:",
                     List({x, labels, y}), " outputs:", x)}) {
    EXPECT_EQ(ipu.TryRun(step).message(), "label 3 in row 1 is outside 0 to 2") << step;
  }
}

TEST(ScatterTest, CombinesInTheOrderOfTheIndices) {
  const struct {
    const char* combine;
    Values expected;
  } kCases[] = {{"SET", {9, 2, 3, 5}},
                {"ADD", {1, 2, 3, 4 + 6 + 9 + 5}},
                {"MULTIPLY", {1, 2, 3, 4 * 6 * 9 * 5}},
                {"MIN", {1, 2, 3, 4}},
                {"MAX", {1, 2, 3, 9}}};
  for (const auto& [combine, expected] : kCases) {
    SCOPED_TRACE(combine);
    const bool set = std::string(combine) == "SET";
    TestIpu ipu;
    const uint32_t x = ipu.Add(INT32, {4}, {1, 2, 3, 4}),
                   indices = ipu.Add(INT32, {3}, {3, set ? 0.0 : 3.0, 3}),
                   updates = ipu.Add(INT32, {3}, {6, 9, 5}), y = ipu.Add(INT32, {4});
    ipu.Run(absl::StrCat("scatter{combine:", combine, "} inputs:", List({x, indices, updates}),
                         " outputs:", y));
    EXPECT_EQ(ipu.Read(y), expected);
    EXPECT_EQ(ipu.Read(x), (Values{1, 2, 3, 4}));
    ipu.Run(absl::StrCat("scatter{combine:", combine, "} inputs:", List({x, indices, updates}),
                         " outputs:", x));
    EXPECT_EQ(ipu.Read(x), expected);
  }
}

TEST(ScatterTest, TakesNotANumberAsExtreme) {
  TestIpu ipu;
  const double nan = std::nan("");
  const uint32_t x = ipu.Add(FLOAT32, {2}, {1, 2}), indices = ipu.Add(INT32, {3}, {0, 0, 1}),
                 updates = ipu.Add(FLOAT32, {3}, {nan, 5, 7});
  ipu.Run(
      absl::StrCat("scatter{combine:MIN} inputs:", List({x, indices, updates}), " outputs:", x));
  EXPECT_TRUE(std::isnan(ipu.Read(x)[0]));
  EXPECT_EQ(ipu.Read(x)[1], 2);
}

// Many columns and many indices, which take rounds; along the axis, and not.
TEST(ScatterTest, LargeTensors) {
  for (const auto& [outer, chosen, inner] :
       {std::tuple(1, 200000, 70), {3, 50, 700}, {500, 30, 1}, {1, 100000, 1}}) {
    for (bool along : {false, true}) {
      SCOPED_TRACE(absl::StrCat(outer, " ", chosen, " ", inner, along ? " along" : ""));
      constexpr int64_t kCount = 11;
      const Dims whole{outer, kCount, inner}, part{outer, chosen, inner};
      TestIpu ipu;
      const Dims of_indices = along ? part : Dims{chosen};
      Values places = RandomIntegers(of_indices, 1);
      for (double& place : places) place = std::fabs(std::fmod(place, kCount));
      const Values add = RandomIntegers(part, 2);
      const uint32_t x = ipu.Add(FLOAT32, whole, Values(outer * kCount * inner, 1)),
                     indices = ipu.Add(INT32, of_indices, places),
                     updates = ipu.Add(FLOAT32, part, add);
      ipu.Run(absl::StrCat("scatter{combine:ADD axis:1 along:", along,
                           "} inputs:", List({x, indices, updates}), " outputs:", x));
      Values expected(outer * kCount * inner, 1);
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t k = 0; k < chosen; ++k) {
          for (int64_t i = 0; i < inner; ++i) {
            const int64_t from = (o * chosen + k) * inner + i;
            const auto place = static_cast<int64_t>(places[along ? from : k]);
            expected[(o * kCount + place) * inner + i] += add[from];
          }
        }
      }
      EXPECT_EQ(ipu.Read(x), expected);
    }
  }
}

TEST(IotaTest, CountsAlongAnAxis) {
  for (DataType type : {INT32, FLOAT32}) {
    TestIpu ipu;
    const uint32_t y = ipu.Add(type, {2, 3, 2});
    ipu.Run(absl::StrCat("iota{type:", type, " dims:[2,3,2] axis:1} outputs:", y));
    EXPECT_EQ(ipu.Read(y), (Values{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  }
}

}  // namespace
}  // namespace vpod::engine
