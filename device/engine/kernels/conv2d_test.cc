#include <algorithm>
#include <thread>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class Conv2dTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, Conv2dTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Case {
  int64_t images, height, width, in, kernel_h, kernel_w, out;
  int64_t stride_h = 1, stride_w = 1, top = 0, bottom = 0, left = 0, right = 0;

  Dims image() const { return {images, height, width, in}; }
  Dims weights() const { return {kernel_h, kernel_w, in, out}; }
  Dims result() const {
    return {images, (height + top + bottom - kernel_h) / stride_h + 1,
            (width + left + right - kernel_w) / stride_w + 1, out};
  }
  std::string Text(const std::string& pass, uint32_t a, uint32_t b, uint32_t output) const {
    return absl::StrCat("conv2d{pass:", pass, " window{stride_h:", stride_h, " stride_w:", stride_w,
                        " pad_top:", top, " pad_bottom:", bottom, " pad_left:", left,
                        " pad_right:", right, "}} inputs:", a, " inputs:", b, " outputs:", output);
  }

  // Visits (image, weights, result) indices of every product of the convolution; the three passes
  // are sums over two of them.
  template <class Visit>
  void ForProducts(const Visit& visit) const {
    const Dims y = result();
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t row = 0; row < y[1]; ++row) {
        for (int64_t column = 0; column < y[2]; ++column) {
          for (int64_t i = 0; i < kernel_h; ++i) {
            for (int64_t j = 0; j < kernel_w; ++j) {
              const int64_t h = row * stride_h + i - top, w = column * stride_w + j - left;
              if (h < 0 || h >= height || w < 0 || w >= width) continue;
              for (int64_t c = 0; c < in; ++c) {
                for (int64_t o = 0; o < out; ++o) {
                  visit(((n * height + h) * width + w) * in + c,
                        ((i * kernel_w + j) * in + c) * out + o,
                        ((n * y[1] + row) * y[2] + column) * out + o);
                }
              }
            }
          }
        }
      }
    }
  }
};

const std::vector<Case> kCases = {
    {1, 1, 1, 1, 1, 1, 1},
    {1, 5, 5, 1, 3, 3, 1},
    {2, 6, 7, 3, 3, 3, 4, 1, 1, 1, 1, 1, 1},
    {2, 6, 6, 16, 1, 1, 16},
    {1, 9, 8, 2, 3, 2, 5, 2, 3},
    {1, 8, 8, 3, 3, 3, 8, 2, 2, 1, 1, 1, 1},
    {1, 8, 8, 3, 3, 3, 8, 2, 2, 0, 1, 0, 1},  // as "same" padding gives for even sizes
    {2, 7, 5, 4, 4, 2, 3, 1, 2, 3, 0, 1, 0},
    {1, 4, 4, 2, 4, 4, 2},
    {1, 3, 3, 1, 5, 5, 2, 1, 1, 2, 2, 2, 2},  // the kernel is larger than the image
    {3, 10, 4, 5, 5, 1, 7, 3, 1, 2, 1, 0, 0},
    {1, 12, 12, 17, 3, 3, 33, 1, 1, 1, 1, 1, 1},
    {1, 7, 7, 3, 2, 2, 4, 3, 3},  // stride beyond the kernel: some of the image is in no window
    {1, 8, 8, 8, 7, 7, 8, 2, 2, 3, 3, 3, 3},
    {2, 1, 20, 4, 1, 5, 4, 1, 1, 0, 0, 2, 2},
};

// Runs the three passes on the given data and compares each with the sum of its products.
template <class Expect>
void CheckPasses(DataType type, const Case& one, const Values& image, const Values& weights,
                 const Values& result, const Expect& expect) {
  SCOPED_TRACE(one.Text("any", 0, 0, 0) + Describe(type, one.image()) +
               Describe(type, one.weights()));
  TestIpu ipu;
  const uint32_t x = ipu.Add(type, one.image(), image), w = ipu.Add(type, one.weights(), weights);
  const uint32_t y = ipu.Add(type, one.result(), result);
  const uint32_t dx = ipu.Add(type, one.image()), dw = ipu.Add(type, one.weights());
  const uint32_t forward = ipu.Add(type, one.result());
  ipu.Run(one.Text("FORWARD", x, w, forward));
  ipu.Run(one.Text("INPUT_GRADIENT", y, w, dx));
  ipu.Run(one.Text("WEIGHT_GRADIENT", x, y, dw));
  const Values in = ipu.Read(x), kernel = ipu.Read(w), out = ipu.Read(y);
  Values expected_y(out.size()), expected_dx(in.size()), expected_dw(kernel.size());
  one.ForProducts([&](int64_t i, int64_t k, int64_t o) {
    expected_y[o] += in[i] * kernel[k];
    expected_dx[i] += out[o] * kernel[k];
    expected_dw[k] += in[i] * out[o];
  });
  expect(ipu.Read(forward), expected_y);
  expect(ipu.Read(dx), expected_dx);
  expect(ipu.Read(dw), expected_dw);
}

// Whole numbers leave no room for rounding: every product must be the right one.
TEST_P(Conv2dTest, AllPassesAreExactForWholeNumbers) {
  for (const Case& one : kCases) {
    CheckPasses(GetParam(), one, RandomIntegers(one.image(), 1), RandomIntegers(one.weights(), 2),
                RandomIntegers(one.result(), 3), [&](const Values& actual, const Values& expected) {
                  ExpectRounded(actual, expected, GetParam());
                });
  }
}

TEST_P(Conv2dTest, AllPassesAreCloseForFractions) {
  for (const Case& one : kCases) {
    // Each addition may lose half a unit of the largest partial sum; this is the longest sum of the
    // three passes.
    const Dims y = one.result();
    const int64_t additions =
        std::max(one.kernel_h * one.kernel_w * std::max(one.in, one.out), y[0] * y[1] * y[2]);
    CheckPasses(GetParam(), one, Random(one.image(), 4), Random(one.weights(), 5),
                Random(one.result(), 6), [&](const Values& actual, const Values& expected) {
                  ExpectClose(actual, expected, GetParam(), 1e-6,
                              4e-7 * static_cast<double>(additions));
                });
  }
}

TEST_P(Conv2dTest, RandomGeometries) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    Case one{1 + below(2), 1 + below(9), 1 + below(9), 1 + below(6), 1 + below(4),
             1 + below(4), 1 + below(6), 1 + below(3), 1 + below(3)};
    one.top = below(one.kernel_h);
    one.bottom = below(one.kernel_h);
    one.left = below(one.kernel_w);
    one.right = below(one.kernel_w);
    if (one.height + one.top + one.bottom < one.kernel_h ||
        one.width + one.left + one.right < one.kernel_w) {
      continue;
    }
    CheckPasses(GetParam(), one, RandomIntegers(one.image(), random()),
                RandomIntegers(one.weights(), random()), RandomIntegers(one.result(), random()),
                [&](const Values& actual, const Values& expected) {
                  ExpectRounded(actual, expected, GetParam());
                });
  }
}

TEST_P(Conv2dTest, OneKernelOnManyThreads) {
  const Case one{1, 12, 12, 17, 3, 3, 33, 1, 1, 1, 1, 1, 1};
  TestIpu ipu;
  const uint32_t x = ipu.Add(GetParam(), one.image(), Random(one.image(), 8));
  const uint32_t y = ipu.Add(GetParam(), one.result(), Random(one.result(), 9));
  const uint32_t dw = ipu.Add(GetParam(), one.weights());
  const std::string text = one.Text("WEIGHT_GRADIENT", x, y, dw);
  program::v1::Instruction instruction;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction));
  const auto kernel = PrepareKernel(ipu.proto(), instruction);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<TestIpu> replicas(4, ipu);
  std::vector<std::thread> threads;
  for (TestIpu& replica : replicas) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) ASSERT_TRUE(RunPhases(*kernel, replica.Arena()).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ipu.Run(text);
  for (TestIpu& replica : replicas) EXPECT_EQ(replica.Bytes(), ipu.Bytes());
}

}  // namespace
}  // namespace vpod::engine
