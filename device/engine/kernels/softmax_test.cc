#include <algorithm>
#include <limits>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class SoftmaxTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, SoftmaxTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

// The last one is cut into parts.
const Dims kShapes[] = {{1}, {7}, {3, 1}, {5, 33}, {2, 3, 100}, {400, 500}, {1, (1 << 20) + 77}};

size_t Length(const Dims& dims) { return static_cast<size_t>(dims.back()); }

Values Reference(const Values& x, size_t length, bool logarithm) {
  Values y(x.size());
  for (size_t row = 0; row < x.size(); row += length) {
    const double largest = *std::max_element(x.begin() + row, x.begin() + row + length);
    double sum = 0;
    for (size_t i = row; i < row + length; ++i) sum += std::exp(x[i] - largest);
    for (size_t i = row; i < row + length; ++i) {
      const double difference = x[i] - largest;
      y[i] = logarithm ? difference - std::log(sum) : std::exp(difference) / sum;
    }
  }
  return y;
}

TEST_P(SoftmaxTest, IsThatOfEachRow) {
  for (const Dims& dims : kShapes) {
    for (bool logarithm : {false, true}) {
      SCOPED_TRACE(absl::StrCat(dims.size(), " dimensions, the last ", dims.back()));
      TestIpu ipu;
      const uint32_t x = ipu.Add(GetParam(), dims, Random(dims, 1, -8, 8)),
                     y = ipu.Add(GetParam(), dims);
      ipu.Run(absl::StrCat("softmax{logarithm:", logarithm, "} inputs:", x, " outputs:", y));
      ExpectClose(ipu.Read(y), Reference(ipu.Read(x), Length(dims), logarithm), GetParam(), 1e-6,
                  1e-6);
    }
  }
}

TEST_P(SoftmaxTest, GradientIsTheDerivative) {
  for (const Dims& dims : kShapes) {
    for (bool logarithm : {false, true}) {
      SCOPED_TRACE(absl::StrCat(dims.size(), " dimensions, the last ", dims.back()));
      TestIpu ipu;
      const uint32_t y = ipu.Add(GetParam(), dims, Random(dims, 1, logarithm ? -8 : 0, 1)),
                     dy = ipu.Add(GetParam(), dims, Random(dims, 2, -1, 1)),
                     dx = ipu.Add(GetParam(), dims);
      ipu.Run(absl::StrCat("softmax_gradient{logarithm:", logarithm, "} inputs:[", y, ",", dy,
                           "] outputs:", dx));
      const Values of_y = ipu.Read(y), of_dy = ipu.Read(dy);
      Values expected(of_y.size());
      double size = 0;
      for (size_t row = 0; row < of_y.size(); row += Length(dims)) {
        double sum = 0;
        for (size_t i = row; i < row + Length(dims); ++i)
          sum += logarithm ? of_dy[i] : of_y[i] * of_dy[i];
        size = std::max(size, std::fabs(sum));
        for (size_t i = row; i < row + Length(dims); ++i) {
          expected[i] = logarithm ? of_dy[i] - std::exp(of_y[i]) * sum : of_y[i] * (of_dy[i] - sum);
        }
      }
      ExpectClose(ipu.Read(dx), expected, GetParam(), 1e-6, 1e-6 * size + 1e-7);
    }
  }
}

TEST_P(SoftmaxTest, LargeAndInfiniteLogits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  TestIpu ipu;
  const Dims dims{4, 2};
  const uint32_t x = ipu.Add(GetParam(), dims,
                             {60000, 60000, -kInfinity, 0, kInfinity, 0, -kInfinity, -kInfinity}),
                 y = ipu.Add(GetParam(), dims);
  ipu.Run(absl::StrCat("softmax{} inputs:", x, " outputs:", y));
  ExpectRounded(ipu.Read(y), {0.5, 0.5, 0, 1, nan, nan, nan, nan}, GetParam());
}

}  // namespace
}  // namespace vpod::engine
