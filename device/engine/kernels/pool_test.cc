#include <algorithm>
#include <limits>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class MaxPool2dTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, MaxPool2dTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Case {
  int64_t images, height, width, channels, kernel_h, kernel_w;
  int64_t stride_h = 1, stride_w = 1, top = 0, bottom = 0, left = 0, right = 0;

  Dims image() const { return {images, height, width, channels}; }
  Dims result() const {
    return {images, (height + top + bottom - kernel_h) / stride_h + 1,
            (width + left + right - kernel_w) / stride_w + 1, channels};
  }
  std::string Window() const {
    return absl::StrCat(" window{kernel_h:", kernel_h, " kernel_w:", kernel_w,
                        " stride_h:", stride_h, " stride_w:", stride_w, " pad_top:", top,
                        " pad_bottom:", bottom, " pad_left:", left, " pad_right:", right, "}");
  }

  // For each element of the result, the image elements under its window in row-major order.
  std::vector<std::vector<size_t>> Windows() const {
    std::vector<std::vector<size_t>> windows;
    const Dims y = result();
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t row = 0; row < y[1]; ++row) {
        for (int64_t column = 0; column < y[2]; ++column) {
          for (int64_t c = 0; c < channels; ++c) {
            std::vector<size_t>& window = windows.emplace_back();
            for (int64_t i = 0; i < kernel_h; ++i) {
              for (int64_t j = 0; j < kernel_w; ++j) {
                const int64_t h = row * stride_h + i - top, w = column * stride_w + j - left;
                if (h < 0 || h >= height || w < 0 || w >= width) continue;
                window.push_back(((n * height + h) * width + w) * channels + c);
              }
            }
          }
        }
      }
    }
    return windows;
  }
};

const std::vector<Case> kCases = {
    {1, 1, 1, 1, 1, 1},
    {2, 4, 6, 3, 2, 2, 2, 2},
    {1, 5, 5, 2, 3, 3},  // overlapping windows
    {1, 7, 6, 4, 3, 2, 2, 1, 1, 1, 1, 0},
    {2, 8, 8, 16, 3, 3, 2, 2, 1, 1, 1, 1},
    {1, 5, 7, 33, 2, 3, 3, 4},  // gaps between windows
    {1, 3, 3, 1, 5, 5, 1, 1, 2, 2, 2, 2},
    {3, 2, 9, 5, 2, 9},
};

// Runs pooling and its gradient and compares both, the gradient with that of the first largest of
// each window.
void Check(DataType type, const Case& one, const Values& image) {
  SCOPED_TRACE(one.Window() + Describe(type, one.image()));
  TestIpu ipu;
  const uint32_t x = ipu.Add(type, one.image(), image), y = ipu.Add(type, one.result());
  // Whole numbers, so that overlapping windows add up exactly.
  const uint32_t dy = ipu.Add(type, one.result(), RandomIntegers(one.result(), 1, 1, 9));
  const uint32_t dx = ipu.Add(type, one.image());
  ipu.Run(absl::StrCat("max_pool2d{", one.Window(), "} inputs:", x, " outputs:", y));
  ipu.Run(absl::StrCat("max_pool2d_gradient{", one.Window(), "} inputs:", x, " inputs:", dy,
                       " outputs:", dx));
  const Values in = ipu.Read(x), gradient = ipu.Read(dy);
  Values expected_y, expected_dx(in.size());
  for (const auto& window : one.Windows()) {
    // max_element gives the first of equals.
    const size_t best = *std::max_element(window.begin(), window.end(),
                                          [&](size_t a, size_t b) { return in[a] < in[b]; });
    expected_dx[best] += gradient[expected_y.size()];
    expected_y.push_back(in[best]);
  }
  EXPECT_EQ(ipu.Read(y), expected_y);
  EXPECT_EQ(ipu.Read(dx), expected_dx);
}

TEST_P(MaxPool2dTest, PoolsAndRoutesGradients) {
  for (const Case& one : kCases) Check(GetParam(), one, Random(one.image(), 2));
}

TEST_P(MaxPool2dTest, FirstOfEqualsTakesTheGradient) {
  for (const Case& one : kCases) {
    Check(GetParam(), one, RandomIntegers(one.image(), 3, 0, 1));
    Check(GetParam(), one, Values(NumElements(one.image()), -7));
  }
}

TEST_P(MaxPool2dTest, PaddingNeverWins) {
  for (const Case& one : kCases) Check(GetParam(), one, Random(one.image(), 4, -9, -1));
}

TEST_P(MaxPool2dTest, WindowsOfMinusInfinity) {
  for (const Case& one : kCases)
    Check(GetParam(), one, Values(NumElements(one.image()), -kInfinity));
}

TEST_P(MaxPool2dTest, RandomGeometries) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 100; ++round) {
    Case one{1 + below(2), 1 + below(9), 1 + below(9), 1 + below(20),
             1 + below(4), 1 + below(4), 1 + below(4), 1 + below(4)};
    one.top = below(one.kernel_h);
    one.bottom = below(one.kernel_h);
    one.left = below(one.kernel_w);
    one.right = below(one.kernel_w);
    if (one.height + one.top + one.bottom < one.kernel_h ||
        one.width + one.left + one.right < one.kernel_w) {
      continue;
    }
    Check(GetParam(), one, RandomIntegers(one.image(), random(), 0, 5));
  }
}

}  // namespace
}  // namespace vpod::engine
