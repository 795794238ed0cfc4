#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class DataMovementTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, DataMovementTest,
                         testing::Values(FLOAT32, FLOAT16, INT8, INT16, INT32, UINT8, UINT16,
                                         UINT32, BOOL),
                         [](const testing::TestParamInfo<DataType>& info) {
                           return std::string(program::Name(info.param));
                         });

struct Range {
  double low, high;
};

// The whole numbers that a type holds and that the tests use.
Range RangeOf(DataType type) {
  switch (type) {
    case BOOL:
      return {0, 1};
    case UINT8:
      return {0, 255};
    case INT8:
      return {-128, 127};
    case INT16:
      return {-32768, 32767};
    case UINT16:
      return {0, 65535};
    case FLOAT16:
      return {-2048, 2048};
    case UINT32:
      return {0, 4294967295.0};
    case INT32:
      return {-2147483648.0, 2147483647.0};
    default:
      return {-16777216, 16777216};
  }
}

Values RandomOf(DataType type, const Dims& dims, uint32_t seed) {
  const auto [low, high] = RangeOf(type);
  Values values = Random(dims, seed, low, high + 1);
  for (double& value : values) value = std::floor(value);
  return values;
}

// --- Layouts ---

enum class Layout { kRowMajor, kChannelsLast, kSpaced };

// Not dense, and the first dimension innermost.
Dims SpacedStrides(const Dims& dims) {
  Dims strides;
  int64_t stride = 2;
  for (int64_t dim : dims) {
    strides.push_back(stride);
    stride *= dim + 1;
  }
  return strides;
}

uint32_t AddAs(TestIpu& ipu, Layout layout, DataType type, const Dims& dims,
               const Values& values = {}) {
  if (layout == Layout::kRowMajor) return ipu.Add(type, dims, values);
  if (layout == Layout::kChannelsLast) return ipu.AddImage(type, dims, values);
  return ipu.Add(type, dims, values, false, SpacedStrides(dims));
}

// That nothing was written between the elements of a tensor.
void ExpectGapsUntouched(TestIpu& ipu, uint32_t index) {
  const program::v1::Tensor& tensor = ipu.proto().tensors(static_cast<int>(index));
  const program::TensorType type = program::TypeOf(tensor);
  const Dims strides = program::StridesOf(tensor);
  std::vector<bool> is_element(program::ArenaBytes(tensor) / program::SizeOf(type.type));
  for (size_t flat = 0; flat < NumElements(type.dims); ++flat) {
    size_t rest = flat, place = 0;
    for (size_t axis = strides.size(); axis-- > 0;) {
      const auto dim = static_cast<size_t>(type.dims[axis]);
      place += rest % dim * static_cast<size_t>(strides[axis]);
      rest /= dim;
    }
    is_element[place] = true;
  }
  const std::byte* data = ipu.Arena() + tensor.offset();
  for (size_t i = 0; i < is_element.size() * program::SizeOf(type.type); ++i) {
    if (is_element[i / program::SizeOf(type.type)]) continue;
    ASSERT_EQ(data[i], kGuard) << "byte " << i << " is between elements";
  }
}

// --- References ---

Dims IndexOf(size_t flat, const Dims& dims) {
  Dims index(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = static_cast<int64_t>(flat % static_cast<size_t>(dims[axis]));
    flat /= static_cast<size_t>(dims[axis]);
  }
  return index;
}

size_t FlatOf(const Dims& index, const Dims& dims) {
  size_t flat = 0;
  for (size_t axis = 0; axis < dims.size(); ++axis)
    flat = flat * static_cast<size_t>(dims[axis]) + static_cast<size_t>(index[axis]);
  return flat;
}

// The value of an output's element at an index.
using Reference = std::function<double(const std::vector<Values>& inputs, const Dims& index)>;

// Runs an operation with inputs and output in all layouts. A start, if there is one, is the last
// input.
void ExpectMoves(DataType type, const std::string& op, const std::vector<Dims>& inputs,
                 const Dims& output, const Reference& reference, const Dims& start = {}) {
  SCOPED_TRACE(op);
  std::vector<Values> values;
  for (const Dims& dims : inputs)
    values.push_back(RandomOf(type, dims, static_cast<uint32_t>(values.size()) + 1));
  Values expected(NumElements(output));
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = reference(values, IndexOf(i, output));
  constexpr Layout kLayouts[] = {Layout::kRowMajor, Layout::kChannelsLast, Layout::kSpaced};
  for (const Layout from : kLayouts) {
    for (const Layout to : kLayouts) {
      SCOPED_TRACE(absl::StrCat("layouts ", static_cast<int>(from), " and ", static_cast<int>(to)));
      TestIpu ipu;
      std::string text = op;
      for (size_t i = 0; i < inputs.size(); ++i)
        absl::StrAppend(&text, " inputs:", AddAs(ipu, from, type, inputs[i], values[i]));
      if (!start.empty()) {
        const uint32_t from_start = ipu.Add(INT32, {static_cast<int64_t>(start.size())},
                                            Values(start.begin(), start.end()));
        absl::StrAppend(&text, " inputs:", from_start);
      }
      const uint32_t y = AddAs(ipu, to, type, output);
      ipu.Run(absl::StrCat(text, " outputs:", y));
      EXPECT_THAT(ipu.Read(y), testing::Pointwise(testing::NanSensitiveDoubleEq(), expected));
      ExpectGapsUntouched(ipu, y);
    }
  }
}

std::string List(const Dims& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ","), "]");
}

// --- Views ---

void ExpectTransposes(DataType type, const Dims& dims, const Dims& permutation) {
  Dims output;
  for (int64_t from : permutation) output.push_back(dims[static_cast<size_t>(from)]);
  ExpectMoves(type, absl::StrCat("transpose{permutation:", List(permutation), "}"), {dims}, output,
              [&](const auto& inputs, const Dims& index) {
                Dims from(index.size());
                for (size_t i = 0; i < index.size(); ++i)
                  from[static_cast<size_t>(permutation[i])] = index[i];
                return inputs[0][FlatOf(from, dims)];
              });
}

TEST_P(DataMovementTest, Transpose) {
  ExpectTransposes(GetParam(), {3, 5}, {1, 0});
  ExpectTransposes(GetParam(), {3, 5}, {0, 1});
  ExpectTransposes(GetParam(), {2, 3, 4}, {2, 0, 1});
  ExpectTransposes(GetParam(), {2, 3, 4, 5}, {0, 2, 3, 1});
  ExpectTransposes(GetParam(), {2, 3, 4, 5}, {3, 1, 0, 2});
  ExpectTransposes(GetParam(), {1, 4, 1, 3}, {3, 2, 1, 0});
  ExpectTransposes(GetParam(), {2, 1, 2, 3, 1, 2, 1, 2}, {7, 5, 3, 1, 6, 4, 2, 0});
  ExpectTransposes(GetParam(), {7}, {0});
}

void ExpectSlices(DataType type, const Dims& dims, const Dims& begin, const Dims& size,
                  const Dims& step) {
  ExpectMoves(
      type,
      absl::StrCat("slice{begin:", List(begin), " size:", List(size), " step:", List(step), "}"),
      {dims}, size, [&](const auto& inputs, const Dims& index) {
        Dims from(index.size());
        for (size_t i = 0; i < index.size(); ++i) from[i] = begin[i] + index[i] * step[i];
        return inputs[0][FlatOf(from, dims)];
      });
}

TEST_P(DataMovementTest, Slice) {
  ExpectSlices(GetParam(), {9}, {0}, {9}, {1});
  ExpectSlices(GetParam(), {9}, {2}, {3}, {1});
  ExpectSlices(GetParam(), {9}, {8}, {1}, {100});  // the step leads nowhere
  ExpectSlices(GetParam(), {9}, {0}, {3}, {4});
  ExpectSlices(GetParam(), {6, 7}, {1, 2}, {3, 2}, {2, 4});
  ExpectSlices(GetParam(), {4, 3, 5, 6}, {1, 0, 2, 5}, {2, 3, 2, 1}, {2, 1, 2, 3});
  ExpectSlices(GetParam(), {2, 2, 2, 2, 2, 2, 2, 3}, {1, 0, 1, 0, 1, 0, 0, 0},
               {1, 2, 1, 2, 1, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 2});
}

void ExpectExpands(DataType type, const Dims& dims, const Dims& output) {
  ExpectMoves(type, absl::StrCat("expand{dims:", List(output), "}"), {dims}, output,
              [&](const auto& inputs, const Dims& index) {
                Dims from(index.end() - static_cast<int64_t>(dims.size()), index.end());
                for (size_t i = 0; i < dims.size(); ++i) from[i] = dims[i] == 1 ? 0 : from[i];
                return inputs[0][FlatOf(from, dims)];
              });
}

TEST_P(DataMovementTest, Expand) {
  ExpectExpands(GetParam(), {1}, {6});
  ExpectExpands(GetParam(), {4}, {4});
  ExpectExpands(GetParam(), {4}, {3, 4});
  ExpectExpands(GetParam(), {3, 1}, {3, 4});
  ExpectExpands(GetParam(), {1, 3, 1}, {2, 3, 4});
  ExpectExpands(GetParam(), {3, 1, 1}, {2, 3, 4, 5});
  ExpectExpands(GetParam(), {2, 1, 2, 1}, {2, 1, 2, 3, 2, 2, 2, 3});
}

// A scalar has no dimensions, so its strides cannot be given.
TEST_P(DataMovementTest, ExpandOfAScalar) {
  for (const Dims& dims : {Dims{}, {5}, {2, 3}}) {
    TestIpu ipu;
    const uint32_t x = ipu.Add(GetParam(), {}, {1}), y = ipu.Add(GetParam(), dims);
    ipu.Run(absl::StrCat("expand{dims:", List(dims), "} inputs:", x, " outputs:", y));
    EXPECT_EQ(ipu.Read(y), Values(NumElements(dims), 1));
  }
}

// --- Pad and concat ---

void ExpectPads(DataType type, const Dims& dims, const Dims& before, const Dims& after,
                double value) {
  Dims output = dims;
  for (size_t i = 0; i < dims.size(); ++i) output[i] += before[i] + after[i];
  const double stored = program::IsFloat(type) ? Round(value, type) : value;
  const std::string text =
      absl::StrFormat("pad{before:%s after:%s value:%.17g}", List(before), List(after), value);
  ExpectMoves(type, text, {dims}, output, [&](const auto& inputs, const Dims& index) {
    Dims from = index;
    for (size_t i = 0; i < dims.size(); ++i) {
      from[i] -= before[i];
      if (from[i] < 0 || from[i] >= dims[i]) return stored;
    }
    return inputs[0][FlatOf(from, dims)];
  });
}

TEST_P(DataMovementTest, Pad) {
  const auto [low, high] = RangeOf(GetParam());
  ExpectPads(GetParam(), {5}, {0}, {0}, 0);
  ExpectPads(GetParam(), {5}, {3}, {2}, 1);
  ExpectPads(GetParam(), {3, 4}, {0, 2}, {1, 0}, low);
  ExpectPads(GetParam(), {3, 4}, {1, 0}, {0, 3}, 1);
  ExpectPads(GetParam(), {2, 3, 4, 5}, {1, 0, 2, 0}, {0, 2, 1, 3}, 0);
  ExpectPads(GetParam(), {1, 1, 2, 1, 1, 2, 1, 1}, {1, 0, 0, 0, 1, 1, 0, 0},
             {0, 0, 1, 1, 0, 0, 0, 2}, 1);
  if (!program::IsFloat(GetParam())) {
    ExpectPads(GetParam(), {2, 2}, {1, 1}, {1, 1}, high);
    return;
  }
  for (double value : {0.1, 1e300, -kInfinity, kNan})
    ExpectPads(GetParam(), {2, 2}, {1, 1}, {1, 1}, value);
}

TEST_P(DataMovementTest, PadOfAScalarCopies) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(GetParam(), {}, {1}), y = ipu.Add(GetParam(), {});
  ipu.Run(absl::StrCat("pad{} inputs:", x, " outputs:", y));
  EXPECT_EQ(ipu.Read(y), Values{1});
}

void ExpectConcatenates(DataType type, const std::vector<Dims>& inputs, size_t axis) {
  Dims output = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) output[axis] += inputs[i][axis];
  ExpectMoves(type, absl::StrCat("concat{axis:", axis, "}"), inputs, output,
              [&](const auto& values, Dims index) {
                size_t i = 0;
                for (; index[axis] >= inputs[i][axis]; ++i) index[axis] -= inputs[i][axis];
                return values[i][FlatOf(index, inputs[i])];
              });
}

TEST_P(DataMovementTest, Concat) {
  ExpectConcatenates(GetParam(), {{4}}, 0);
  ExpectConcatenates(GetParam(), {{4}, {1}, {7}}, 0);
  ExpectConcatenates(GetParam(), {{2, 3}, {4, 3}}, 0);
  ExpectConcatenates(GetParam(), {{3, 2}, {3, 1}, {3, 5}}, 1);
  ExpectConcatenates(GetParam(), {{2, 3, 4, 5}, {2, 1, 4, 5}}, 1);
  ExpectConcatenates(GetParam(), {{2, 3, 4, 5}, {2, 3, 4, 2}, {2, 3, 4, 1}}, 3);
}

TEST_P(DataMovementTest, ConcatOfATensorWithItself) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(GetParam(), {2}, {1, 0}), y = ipu.Add(GetParam(), {4});
  ipu.Run(absl::StrCat("concat{} inputs:", x, " inputs:", x, " outputs:", y));
  EXPECT_EQ(ipu.Read(y), (Values{1, 0, 1, 0}));
}

// --- Slices whose place is data ---

// Where the slice begins on every axis.
Dims BeginOf(const Dims& dims, const Dims& axes, const Dims& start) {
  Dims begin(dims.size());
  for (size_t i = 0; i < axes.size(); ++i) begin[static_cast<size_t>(axes[i])] = start[i];
  return begin;
}

void ExpectDynamic(DataType type, const Dims& dims, const Dims& axes, const Dims& start,
                   const Dims& size) {
  const Dims begin = BeginOf(dims, axes, start);
  Dims of_axes;
  for (int64_t axis : axes) of_axes.push_back(size[static_cast<size_t>(axis)]);
  ExpectMoves(
      type, absl::StrCat("dynamic_slice{axes:", List(axes), " size:", List(of_axes), "}"), {dims},
      size,
      [&](const auto& inputs, Dims index) {
        for (size_t i = 0; i < index.size(); ++i) index[i] += begin[i];
        return inputs[0][FlatOf(index, dims)];
      },
      start);
  ExpectMoves(
      type, absl::StrCat("dynamic_update{axes:", List(axes), "}"), {dims, size}, dims,
      [&](const auto& inputs, const Dims& index) {
        Dims from = index;
        for (size_t i = 0; i < index.size(); ++i) {
          from[i] -= begin[i];
          if (from[i] < 0 || from[i] >= size[i]) return inputs[0][FlatOf(index, dims)];
        }
        return inputs[1][FlatOf(from, size)];
      },
      start);
}

TEST_P(DataMovementTest, DynamicSlicesAndUpdates) {
  ExpectDynamic(GetParam(), {9}, {0}, {0}, {9});
  ExpectDynamic(GetParam(), {9}, {0}, {8}, {1});
  ExpectDynamic(GetParam(), {9}, {0}, {4}, {3});
  ExpectDynamic(GetParam(), {5, 7}, {1}, {3}, {5, 2});
  ExpectDynamic(GetParam(), {5, 7}, {0, 1}, {1, 4}, {2, 3});
  ExpectDynamic(GetParam(), {4, 3, 5, 6}, {0, 3}, {3, 2}, {1, 3, 5, 4});
  ExpectDynamic(GetParam(), {2, 2, 2, 2, 2, 2, 2, 3}, {0, 2, 7}, {1, 0, 1},
                {1, 2, 1, 2, 2, 2, 2, 2});
}

TEST_P(DataMovementTest, DynamicUpdateOfADestinationInPlace) {
  TestIpu ipu;
  const Values values = RandomOf(GetParam(), {50, 4000}, 1),
               part = RandomOf(GetParam(), {40, 4000}, 2);
  const uint32_t x = ipu.Add(GetParam(), {50, 4000}, values);
  const uint32_t update = ipu.Add(GetParam(), {40, 4000}, part), start = ipu.Add(INT32, {1}, {7});
  ipu.Run(
      absl::StrCat("dynamic_update{axes:0} inputs:[", x, ",", update, ",", start, "] outputs:", x));
  Values expected = values;
  std::copy(part.begin(), part.end(), expected.begin() + 7 * 4000);
  EXPECT_EQ(ipu.Read(x), expected);
}

TEST(DynamicSliceTest, AStartOutsideFails) {
  for (const auto& [first, second, message] :
       {std::tuple<double, double, const char*>(-1, 0, "start -1 on axis 0 is outside 0 to 2"),
        {3, 0, "start 3 on axis 0 is outside 0 to 2"},
        {0, 4, "start 4 on axis 2 is outside 0 to 3"},
        {2, -2147483648.0, "start -2147483648 on axis 2 is outside 0 to 3"}}) {
    TestIpu ipu;
    const Values values = Random({5, 2, 6}, 1), part = Random({3, 2, 3}, 2);
    const uint32_t x = ipu.Add(FLOAT32, {5, 2, 6}, values), y = ipu.Add(FLOAT32, {3, 2, 3}, part);
    const uint32_t start = ipu.Add(INT32, {2}, {first, second});
    const auto slice = ipu.TryRun(absl::StrCat("dynamic_slice{axes:[0,2] size:[3,3]} inputs:[", x,
                                               ",", start, "] outputs:", y));
    EXPECT_EQ(slice.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(slice.message(), message);
    const auto update = ipu.TryRun(absl::StrCat("dynamic_update{axes:[0,2]} inputs:[", x, ",", y,
                                                ",", start, "] outputs:", x));
    EXPECT_EQ(update.message(), message);
    // Neither has written anything.
    EXPECT_EQ(ipu.Read(x), [&] {
      Values rounded = values;
      for (double& value : rounded) value = Round(value, FLOAT32);
      return rounded;
    }());
  }
}

// Enough elements for several chunks, and rows of several blocks; neither ends evenly.
TEST_P(DataMovementTest, ManyElements) {
  TestIpu ipu;
  const Dims dims{61, 4999}, turned{4999, 61}, padded{63, 4999};
  const Values values = RandomOf(GetParam(), dims, 1);
  const uint32_t x = ipu.Add(GetParam(), dims, values), t = ipu.Add(GetParam(), turned);
  const uint32_t p = ipu.Add(GetParam(), padded), s = ipu.Add(GetParam(), {2, 4999});
  ipu.Run(absl::StrCat("transpose{permutation:[1,0]} inputs:", x, " outputs:", t));
  ipu.Run(absl::StrCat("pad{before:[1,0] after:[1,0] value:1} inputs:", x, " outputs:", p));
  ipu.Run(absl::StrCat("slice{begin:[0,0] size:[2,4999] step:[62,1]} inputs:", p, " outputs:", s));
  ipu.Run(absl::StrCat("concat{} inputs:", x, " inputs:", s, " outputs:", p));
  EXPECT_EQ(ipu.Read(s), Values(2 * 4999, 1));
  Values expected(values.size());
  for (size_t i = 0; i < values.size(); ++i) expected[i % 4999 * 61 + i / 4999] = values[i];
  EXPECT_EQ(ipu.Read(t), expected);
  expected = values;
  expected.resize(63 * 4999, 1);
  EXPECT_EQ(ipu.Read(p), expected);
}

}  // namespace
}  // namespace vpod::engine
