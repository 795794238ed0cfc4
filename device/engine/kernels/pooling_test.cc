#include <limits>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

class PoolingTest : public testing::TestWithParam<program::v1::DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, PoolingTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

constexpr char k3x3[] =
    "window{kernel:[3,3] stride:[2,2] dilation:[1,1] pad_before:[1,1] pad_after:[1,1]}";

// One channel of 4 × 4, and the same negated.
Values TwoChannels() {
  const Values first = {1, 5, 2, 0, 3, 5, 8, 1, 9, 2, 4, 8, 7, 6, 0, 3};
  Values both = first;
  for (double value : first) both.push_back(-value);
  return both;
}

TEST_P(PoolingTest, MaximumAndItsPlace) {
  TestIpu ipu;
  const uint32_t x = ipu.AddImage(GetParam(), {1, 2, 4, 4}, TwoChannels()),
                 y = ipu.AddImage(GetParam(), {1, 2, 2, 2}),
                 places = ipu.AddImage(INT32, {1, 2, 2, 2}),
                 dy = ipu.AddImage(GetParam(), {1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                 dx = ipu.AddImage(GetParam(), {1, 2, 4, 4});
  ipu.Run(absl::StrCat("max_pool{", k3x3, "} inputs:", x, " outputs:[", y, ",", places, "]"));
  EXPECT_EQ(ipu.Read(y), (Values{5, 8, 9, 8, -1, -0.0, -2, -0.0}));
  // The first of equals.
  EXPECT_EQ(ipu.Read(places), (Values{1, 6, 8, 6, 0, 3, 9, 14}));
  ipu.Run(absl::StrCat("max_pool_gradient{", k3x3, " image_size:[4,4]} inputs:[", dy, ",", places,
                       "] outputs:", dx));
  Values expected(32);
  expected[1] = 1;
  expected[6] = 2 + 4;
  expected[8] = 3;
  expected[16] = 5;
  expected[16 + 3] = 6;
  expected[16 + 9] = 7;
  expected[16 + 14] = 8;
  EXPECT_EQ(ipu.Read(dx), expected);
}

TEST_P(PoolingTest, NotANumberIsTheLargest) {
  Values image = TwoChannels();
  image[5] = std::nan("");
  TestIpu ipu;
  const uint32_t x = ipu.AddImage(GetParam(), {1, 2, 4, 4}, image),
                 y = ipu.AddImage(GetParam(), {1, 2, 2, 2}),
                 places = ipu.AddImage(INT32, {1, 2, 2, 2});
  ipu.Run(absl::StrCat("max_pool{", k3x3, "} inputs:", x, " outputs:[", y, ",", places, "]"));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(ipu.Read(y)[i]));
    EXPECT_EQ(ipu.Read(places)[i], 5);
    EXPECT_FALSE(std::isnan(ipu.Read(y)[4 + i]));
  }
}

TEST_P(PoolingTest, MeanWithAndWithoutPadding) {
  for (const bool padding : {true, false}) {
    TestIpu ipu;
    const uint32_t x = ipu.AddImage(GetParam(), {1, 2, 4, 4}, TwoChannels()),
                   y = ipu.AddImage(GetParam(), {1, 2, 2, 2}),
                   dy = ipu.AddImage(GetParam(), {1, 2, 2, 2}, {36, 36, 36, 36, 0, 0, 0, 36}),
                   dx = ipu.AddImage(GetParam(), {1, 2, 4, 4});
    const std::string attributes = absl::StrCat(k3x3, padding ? " count_padding:true" : "");
    ipu.Run(absl::StrCat("average_pool{", attributes, "} inputs:", x, " outputs:", y));
    // Sums of the windows; of the first, 2 × 2 elements lie in the image.
    const Values sums = {14, 21, 32, 37};
    const Values elements = {4, 6, 6, 9};
    Values expected;
    for (double sign : {1, -1}) {
      for (size_t i = 0; i < 4; ++i)
        expected.push_back(sign * sums[i] / (padding ? 9 : elements[i]));
    }
    ExpectClose(ipu.Read(y), expected, GetParam());
    ipu.Run(absl::StrCat("average_pool_gradient{", attributes, " image_size:[4,4]} inputs:", dy,
                         " outputs:", dx));
    // The first pixel is in the first window only, the sixth in all four.
    EXPECT_EQ(ipu.Read(dx)[0], padding ? 4 : 9);
    EXPECT_EQ(ipu.Read(dx)[5], padding ? 16 : 9 + 6 + 6 + 4);
    EXPECT_EQ(ipu.Read(dx)[16], 0);
    EXPECT_EQ(ipu.Read(dx)[31], 4);
  }
}

// Windows [0,2), [1,4) and [3,5); then one window more than there are pixels.
TEST_P(PoolingTest, WindowsThatDivideTheImage) {
  TestIpu ipu;
  const uint32_t x = ipu.AddImage(GetParam(), {1, 1, 5}, {1, 5, 2, 4, 3}),
                 y = ipu.AddImage(GetParam(), {1, 1, 3}), places = ipu.AddImage(INT32, {1, 1, 3}),
                 dy = ipu.AddImage(GetParam(), {1, 1, 3}, {6, 9, 4}),
                 dx = ipu.AddImage(GetParam(), {1, 1, 5});
  ipu.Run(absl::StrCat("max_pool{output_size:3} inputs:", x, " outputs:[", y, ",", places, "]"));
  EXPECT_EQ(ipu.Read(y), (Values{5, 5, 4}));
  EXPECT_EQ(ipu.Read(places), (Values{1, 1, 3}));
  ipu.Run(
      absl::StrCat("max_pool_gradient{image_size:5} inputs:[", dy, ",", places, "] outputs:", dx));
  EXPECT_EQ(ipu.Read(dx), (Values{0, 15, 0, 4, 0}));
  ipu.Run(absl::StrCat("average_pool{output_size:3} inputs:", x, " outputs:", y));
  ExpectClose(ipu.Read(y), {3, 11.0 / 3, 3.5}, GetParam());
  ipu.Run(absl::StrCat("average_pool_gradient{image_size:5} inputs:", dy, " outputs:", dx));
  ExpectClose(ipu.Read(dx), {3, 6, 3, 5, 2}, GetParam());
  const uint32_t two = ipu.AddImage(GetParam(), {1, 1, 2}, {1, 2});
  ipu.Run(absl::StrCat("average_pool{output_size:3} inputs:", two, " outputs:", y));
  EXPECT_EQ(ipu.Read(y), (Values{1, 1.5, 2}));
}

TEST_P(PoolingTest, WindowsThatDivideAPlane) {
  TestIpu ipu;
  const uint32_t x = ipu.AddImage(GetParam(), {1, 2, 4, 4}, TwoChannels()),
                 y = ipu.AddImage(GetParam(), {1, 2, 3, 1}),
                 places = ipu.AddImage(INT32, {1, 2, 3, 1});
  ipu.Run(
      absl::StrCat("max_pool{output_size:[3,1]} inputs:", x, " outputs:[", y, ",", places, "]"));
  // Rows 0 and 1, 1 and 2, 2 and 3.
  EXPECT_EQ(ipu.Read(y), (Values{8, 9, 9, -0.0, -1, -0.0}));
  EXPECT_EQ(ipu.Read(places), (Values{6, 8, 8, 3, 7, 14}));
  ipu.Run(absl::StrCat("average_pool{output_size:[3,1]} inputs:", x, " outputs:", y));
  EXPECT_EQ(ipu.Read(y), (Values{25.0 / 8, 5, 39.0 / 8, -25.0 / 8, -5, -39.0 / 8}));
}

// Dilation may leave a window nothing but padding.
TEST_P(PoolingTest, AWindowWithoutPixels) {
  TestIpu ipu;
  const uint32_t x = ipu.AddImage(GetParam(), {1, 1, 1}, {3}),
                 y = ipu.AddImage(GetParam(), {1, 1, 2}), places = ipu.AddImage(INT32, {1, 1, 2}),
                 dy = ipu.AddImage(GetParam(), {1, 1, 2}, {1, 2}),
                 dx = ipu.AddImage(GetParam(), {1, 1, 1});
  const std::string window = "window{kernel:2 stride:1 dilation:2 pad_before:1 pad_after:2}";
  ipu.Run(absl::StrCat("max_pool{", window, "} inputs:", x, " outputs:[", y, ",", places, "]"));
  EXPECT_EQ(ipu.Read(y), (Values{-std::numeric_limits<double>::infinity(), 3}));
  EXPECT_EQ(ipu.Read(places), (Values{-1, 0}));
  ipu.Run(absl::StrCat("max_pool_gradient{", window, " image_size:1} inputs:[", dy, ",", places,
                       "] outputs:", dx));
  EXPECT_EQ(ipu.Read(dx), Values{2});
}

TEST_P(PoolingTest, LinesAndVolumes) {
  TestIpu ipu;
  const uint32_t x = ipu.AddImage(GetParam(), {1, 1, 6}, {1, 4, 2, 5, 3, 6}),
                 y = ipu.AddImage(GetParam(), {1, 1, 2}), places = ipu.AddImage(INT32, {1, 1, 2});
  // Dilation 2: elements 0, 2, 4 and 1, 3, 5.
  ipu.Run(
      absl::StrCat("max_pool{window{kernel:3 stride:1 dilation:2 pad_before:0 pad_after:0}} "
                   "inputs:",
                   x, " outputs:[", y, ",", places, "]"));
  EXPECT_EQ(ipu.Read(y), (Values{3, 6}));
  EXPECT_EQ(ipu.Read(places), (Values{4, 5}));
  const uint32_t volume = ipu.AddImage(GetParam(), {1, 1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                 mean = ipu.AddImage(GetParam(), {1, 1, 1, 1, 1});
  ipu.Run(
      absl::StrCat("average_pool{window{kernel:[2,2,2] stride:[1,1,1] dilation:[1,1,1] "
                   "pad_before:[0,0,0] pad_after:[0,0,0]}} inputs:",
                   volume, " outputs:", mean));
  EXPECT_EQ(ipu.Read(mean), Values{4.5});
}

// A pooling of planes, computed window by window.
struct PlaneCase {
  int64_t images, channels, height, width, kernel, stride, dilation, pad;

  int64_t ResultOf(int64_t size) const {
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  }
  Dims image() const { return {images, channels, height, width}; }
  Dims result() const { return {images, channels, ResultOf(height), ResultOf(width)}; }
  std::string window() const {
    const auto twice = [](const char* name, int64_t value) {
      return absl::StrCat(name, ":[", value, ",", value, "] ");
    };
    return absl::StrCat("window{", twice("kernel", kernel), twice("stride", stride),
                        twice("dilation", dilation), twice("pad_before", pad),
                        twice("pad_after", pad), "}");
  }
  // Calls `visit(window, pixel, pixel in its plane)` for all pairs.
  template <class Visit>
  void ForPairs(const Visit& visit) const {
    const int64_t rows = ResultOf(height), columns = ResultOf(width);
    for (int64_t w = 0; w < images * channels * rows * columns; ++w) {
      for (int64_t k = 0; k < kernel * kernel; ++k) {
        const int64_t y = w / columns % rows * stride + k / kernel * dilation - pad,
                      x = w % columns * stride + k % kernel * dilation - pad;
        if (y < 0 || y >= height || x < 0 || x >= width) continue;
        const int64_t at = y * width + x;
        visit(static_cast<size_t>(w),
              static_cast<size_t>(w / (rows * columns) * height * width + at), at);
      }
    }
  }
};

constexpr PlaneCase kPlanes[] = {
    {16, 10, 24, 24, 2, 2, 1, 0},   // whole images
    {3, 20, 9, 7, 3, 2, 1, 1},      // windows overlap
    {2, 3, 11, 13, 3, 1, 2, 1},     // gaps, few channels
    {1, 70, 65, 80, 3, 2, 1, 1},    // channels are cut
    {1, 1, 2, 40000, 2, 2, 1, 0},   // long lines
    {2, 1, 103, 600, 2, 5, 1, 0},   // pixels outside all windows
    {1, 1, 5, 30000, 2, 1, 3, 1},   // gaps in long lines
    {1, 1, 1100, 800, 3, 2, 1, 1},  // a large image
};

TEST_P(PoolingTest, PlanesEqualWindowByWindow) {
  for (const PlaneCase& plane : kPlanes) {
    SCOPED_TRACE(Describe(GetParam(), plane.image()));
    // Few values, so that there are equal ones.
    const Values image = RandomIntegers(plane.image(), 1, -40, 40),
                 gradient = RandomIntegers(plane.result(), 2);
    const size_t windows = NumElements(plane.result());
    Values largest(windows, -std::numeric_limits<double>::infinity()), places(windows, -1),
        of_largest(image.size()), sums(windows), counts(windows), of_mean(image.size());
    std::vector<size_t> pixels(windows, image.size());
    plane.ForPairs([&](size_t window, size_t pixel, int64_t place) {
      sums[window] += image[pixel];
      ++counts[window];
      if (image[pixel] <= largest[window]) return;
      largest[window] = image[pixel];
      places[window] = static_cast<double>(place);
      pixels[window] = pixel;
    });
    for (size_t w = 0; w < windows; ++w) {
      if (pixels[w] < image.size()) of_largest[pixels[w]] += gradient[w];
    }
    plane.ForPairs([&](size_t window, size_t pixel, int64_t) {
      of_mean[pixel] += gradient[window] / counts[window];
    });
    for (size_t w = 0; w < windows; ++w) sums[w] /= counts[w];

    TestIpu ipu;
    const uint32_t x = ipu.AddImage(GetParam(), plane.image(), image),
                   y = ipu.AddImage(GetParam(), plane.result()),
                   indices = ipu.AddImage(INT32, plane.result()),
                   dy = ipu.AddImage(GetParam(), plane.result(), gradient),
                   dx = ipu.AddImage(GetParam(), plane.image());
    const std::string size =
        absl::StrCat(" image_size:[", plane.height, ",", plane.width, "]} inputs:");
    ipu.Run(absl::StrCat("max_pool{", plane.window(), "} inputs:", x, " outputs:[", y, ",", indices,
                         "]"));
    EXPECT_EQ(ipu.Read(y), largest);
    EXPECT_EQ(ipu.Read(indices), places);
    ipu.Run(absl::StrCat("max_pool_gradient{", plane.window(), size, "[", dy, ",", indices,
                         "] outputs:", dx));
    EXPECT_EQ(ipu.Read(dx), of_largest);
    ipu.Run(absl::StrCat("average_pool{", plane.window(), "} inputs:", x, " outputs:", y));
    ExpectClose(ipu.Read(y), sums, GetParam());
    ipu.Run(absl::StrCat("average_pool_gradient{", plane.window(), size, dy, " outputs:", dx));
    ExpectClose(ipu.Read(dx), of_mean, GetParam());
  }
}

// Such indices come from a program that is wrong; they must not lead outside the image.
TEST_P(PoolingTest, IndicesOutsideTheImageAreIgnored) {
  TestIpu ipu;
  const uint32_t places = ipu.AddImage(INT32, {1, 1, 3}, {6, -7, 1}),
                 dy = ipu.AddImage(GetParam(), {1, 1, 3}, {1, 2, 4}),
                 dx = ipu.AddImage(GetParam(), {1, 1, 6});
  ipu.Run(
      absl::StrCat("max_pool_gradient{window{kernel:2 stride:2 dilation:1 pad_before:0 "
                   "pad_after:0} image_size:6} inputs:[",
                   dy, ",", places, "] outputs:", dx));
  EXPECT_EQ(ipu.Read(dx), (Values{0, 4, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace vpod::engine
