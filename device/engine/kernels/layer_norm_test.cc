#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class LayerNormTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, LayerNormTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

constexpr double kEpsilon = 0.5;

// The last one is cut into parts.
const Dims kShapes[] = {{1}, {7}, {3, 1}, {5, 33}, {2, 3, 100}, {300, 600}, {2, (1 << 20) + 77}};

struct Moments {
  double mean = 0, inverse = 0;
};

Moments MomentsOf(const Values& x, size_t row, size_t length) {
  Moments moments;
  for (size_t i = row; i < row + length; ++i) moments.mean += x[i] / static_cast<double>(length);
  double squares = 0;
  for (size_t i = row; i < row + length; ++i)
    squares += (x[i] - moments.mean) * (x[i] - moments.mean);
  moments.inverse = 1 / std::sqrt(squares / static_cast<double>(length) + kEpsilon);
  return moments;
}

struct Case {
  TestIpu ipu;
  size_t length, rows;
  uint32_t x, scale, offset, y, mean, inverse;

  Case(const Dims& dims, DataType type, double low, double high)
      : length(static_cast<size_t>(dims.back())), rows(1) {
    const Dims of_rows(dims.begin(), dims.end() - 1), row{dims.back()};
    for (int64_t dim : of_rows) rows *= static_cast<size_t>(dim);
    x = ipu.Add(type, dims, Random(dims, 1, low, high));
    scale = ipu.Add(type, row, Random(row, 2, 0.5, 2));
    offset = ipu.Add(type, row, Random(row, 3, -1, 1));
    y = ipu.Add(type, dims);
    mean = ipu.Add(FLOAT32, of_rows);
    inverse = ipu.Add(FLOAT32, of_rows);
  }
  void Run(bool affine) {
    ipu.Run(absl::StrCat("layer_norm{epsilon:", kEpsilon, "} inputs:", x,
                         affine ? absl::StrCat(" inputs:[", scale, ",", offset, "]") : "",
                         " outputs:[", y, ",", mean, ",", inverse, "]"));
  }
};

TEST_P(LayerNormTest, NormalizesEachRow) {
  for (const Dims& dims : kShapes) {
    for (bool affine : {false, true}) {
      SCOPED_TRACE(absl::StrCat(dims.size(), " dimensions, the last ", dims.back()));
      Case c(dims, GetParam(), -2, 5);
      c.Run(affine);
      const Values x = c.ipu.Read(c.x), scale = c.ipu.Read(c.scale), offset = c.ipu.Read(c.offset);
      Values y(x.size()), mean, inverse;
      for (size_t row = 0; row < x.size(); row += c.length) {
        const Moments moments = MomentsOf(x, row, c.length);
        mean.push_back(moments.mean);
        inverse.push_back(moments.inverse);
        for (size_t i = 0; i < c.length; ++i) {
          y[row + i] = (x[row + i] - moments.mean) * moments.inverse;
          if (affine) y[row + i] = y[row + i] * scale[i] + offset[i];
        }
      }
      ExpectClose(c.ipu.Read(c.y), y, GetParam(), 1e-6, 1e-6);
      ExpectClose(c.ipu.Read(c.mean), mean, FLOAT32, 1e-6, 1e-6);
      ExpectClose(c.ipu.Read(c.inverse), inverse, FLOAT32, 1e-6, 1e-6);
    }
  }
}

// The digits of the differences are not those of the mean.
TEST(LayerNormTest, MeanMayBeMuchLargerThanTheDeviation) {
  Case c({1, 1000}, FLOAT32, 9999, 10001);
  c.Run(false);
  const Values x = c.ipu.Read(c.x), y = c.ipu.Read(c.y);
  const Moments moments = MomentsOf(x, 0, 1000);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(y[i], (x[i] - moments.mean) * moments.inverse, 1e-6);
}

TEST_P(LayerNormTest, GradientIsTheDerivative) {
  for (const Dims& dims : kShapes) {
    for (bool affine : {false, true}) {
      SCOPED_TRACE(absl::StrCat(dims.size(), " dimensions, the last ", dims.back()));
      Case c(dims, GetParam(), -2, 2);
      c.Run(affine);
      const uint32_t dy = c.ipu.Add(GetParam(), dims, Random(dims, 4, -1, 1)),
                     dx = c.ipu.Add(GetParam(), dims);
      c.ipu.Run(absl::StrCat("layer_norm_gradient{} inputs:[", c.x, ",", dy, ",", c.mean, ",",
                             c.inverse, "]", affine ? absl::StrCat(" inputs:", c.scale) : "",
                             " outputs:", dx));
      const Values x = c.ipu.Read(c.x), of_dy = c.ipu.Read(dy), scale = c.ipu.Read(c.scale);
      Values expected(x.size());
      const auto n = static_cast<double>(c.length);
      for (size_t row = 0; row < x.size(); row += c.length) {
        const Moments moments = MomentsOf(x, row, c.length);
        double sum = 0, products = 0;
        const auto g = [&](size_t i) { return of_dy[row + i] * (affine ? scale[i] : 1); };
        const auto normalized = [&](size_t i) {
          return (x[row + i] - moments.mean) * moments.inverse;
        };
        for (size_t i = 0; i < c.length; ++i) {
          sum += g(i) / n;
          products += g(i) * normalized(i) / n;
        }
        for (size_t i = 0; i < c.length; ++i)
          expected[row + i] = moments.inverse * (g(i) - sum - normalized(i) * products);
      }
      ExpectClose(c.ipu.Read(dx), expected, GetParam(), 1e-6, 2e-6);
    }
  }
}

}  // namespace
}  // namespace vpod::engine
