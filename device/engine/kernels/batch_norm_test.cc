#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

constexpr double kEpsilon = 1e-5;

class BatchNormTest : public testing::TestWithParam<program::v1::DataType> {
 protected:
  static Values Rounded(Values values, program::v1::DataType type) {
    for (double& value : values) value = Round(value, type);
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, BatchNormTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

// Calls `visit(element, channel)`.
template <class Visit>
void ForElements(const Dims& dims, const Visit& visit) {
  const size_t n = NumElements(dims), pixels = n / static_cast<size_t>(dims[0] * dims[1]);
  for (size_t i = 0; i < n; ++i) visit(i, i / pixels % static_cast<size_t>(dims[1]));
}

struct Moments {
  Values mean, variance;
  Moments(const Dims& dims, const Values& x) : mean(static_cast<size_t>(dims[1])), variance(mean) {
    const double count = static_cast<double>(x.size()) / static_cast<double>(mean.size());
    ForElements(dims, [&](size_t i, size_t c) { mean[c] += x[i] / count; });
    ForElements(dims, [&](size_t i, size_t c) {
      variance[c] += (x[i] - mean[c]) * (x[i] - mean[c]) / count;
    });
  }
};

TEST_P(BatchNormTest, NormalisesByItsOwnMoments) {
  // The last has more than one chunk.
  for (const Dims& dims : {Dims{6, 3}, {4, 5, 7}, {2, 17, 3, 4}, {40, 9, 33, 31}}) {
    const Dims channels = {dims[1]};
    const Values x = Rounded(Random(dims, 1, -1, 5), GetParam());
    const Values scale = Rounded(Random(channels, 2), FLOAT32),
                 offset = Rounded(Random(channels, 3), FLOAT32);
    TestIpu ipu;
    const uint32_t in = ipu.AddImage(GetParam(), dims, x), s = ipu.Add(FLOAT32, channels, scale),
                   o = ipu.Add(FLOAT32, channels, offset), out = ipu.AddImage(GetParam(), dims),
                   mean = ipu.Add(FLOAT32, channels), variance = ipu.Add(FLOAT32, channels),
                   inferred = ipu.AddImage(GetParam(), dims);
    ipu.Run(absl::StrCat("batch_norm{epsilon:1e-5} inputs:[", in, ",", s, ",", o, "] outputs:[",
                         out, ",", mean, ",", variance, "]"));
    const Moments moments(dims, x);
    ExpectClose(ipu.Read(mean), moments.mean, FLOAT32);
    ExpectClose(ipu.Read(variance), moments.variance, FLOAT32);
    Values expected(x.size());
    ForElements(dims, [&](size_t i, size_t c) {
      expected[i] =
          (x[i] - moments.mean[c]) / std::sqrt(moments.variance[c] + kEpsilon) * scale[c] +
          offset[c];
    });
    ExpectClose(ipu.Read(out), expected, GetParam());
    // With the same moments inference gives the same.
    ipu.Run(absl::StrCat("batch_norm_inference{epsilon:1e-5} inputs:[", in, ",", s, ",", o, ",",
                         mean, ",", variance, "] outputs:", inferred));
    EXPECT_EQ(ipu.Read(inferred), ipu.Read(out));
  }
}

TEST_P(BatchNormTest, Gradients) {
  for (const Dims& dims : {Dims{6, 3}, {2, 17, 3, 4}, {40, 9, 33, 31}}) {
    const Dims channels = {dims[1]};
    const Values x = Rounded(Random(dims, 1, -1, 5), GetParam()),
                 dy = Rounded(Random(dims, 4), GetParam());
    const Values scale = Rounded(Random(channels, 2), FLOAT32);
    const Moments moments(dims, x);
    TestIpu ipu;
    const uint32_t in = ipu.AddImage(GetParam(), dims, x),
                   gradient = ipu.AddImage(GetParam(), dims, dy),
                   s = ipu.Add(FLOAT32, channels, scale),
                   mean = ipu.Add(FLOAT32, channels, moments.mean),
                   variance = ipu.Add(FLOAT32, channels, moments.variance),
                   dx = ipu.AddImage(GetParam(), dims), ds = ipu.Add(FLOAT32, channels),
                   doffset = ipu.Add(FLOAT32, channels);
    ipu.Run(absl::StrCat("batch_norm_gradient{epsilon:1e-5} inputs:[", in, ",", gradient, ",", s,
                         ",", mean, ",", variance, "] outputs:[", dx, ",", ds, ",", doffset, "]"));
    const double count = static_cast<double>(x.size()) / static_cast<double>(dims[1]);
    Values sum(scale.size()), product(scale.size()), expected(x.size());
    const auto normal = [&](size_t i, size_t c) {
      return (x[i] - moments.mean[c]) / std::sqrt(moments.variance[c] + kEpsilon);
    };
    ForElements(dims, [&](size_t i, size_t c) {
      sum[c] += dy[i];
      product[c] += dy[i] * normal(i, c);
    });
    ForElements(dims, [&](size_t i, size_t c) {
      expected[i] = scale[c] / std::sqrt(moments.variance[c] + kEpsilon) *
                    (dy[i] - sum[c] / count - normal(i, c) * product[c] / count);
    });
    ExpectClose(ipu.Read(dx), expected, GetParam());
    ExpectClose(ipu.Read(ds), product, FLOAT32, 1e-5, 1e-4);
    ExpectClose(ipu.Read(doffset), sum, FLOAT32, 1e-5, 1e-4);
  }
}

TEST_P(BatchNormTest, NotANumberIsSeen) {
  Values x = {1, 2, 3, 4, 5, 6};
  x[0] = std::nan("");
  TestIpu ipu;
  const uint32_t in = ipu.Add(GetParam(), {3, 2}, x), s = ipu.Add(FLOAT32, {2}, {1, 1}),
                 o = ipu.Add(FLOAT32, {2}, {0, 0}), out = ipu.Add(GetParam(), {3, 2}),
                 mean = ipu.Add(FLOAT32, {2}), variance = ipu.Add(FLOAT32, {2});
  ipu.Run(absl::StrCat("batch_norm{epsilon:1e-5} inputs:[", in, ",", s, ",", o, "] outputs:[", out,
                       ",", mean, ",", variance, "]"));
  const Values y = ipu.Read(out);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(y[i]), i % 2 == 0);
  EXPECT_TRUE(std::isnan(ipu.Read(variance)[0]));
}

// With an addend and an activation batch norm gives the bits of the three ops, and so does its
// gradient.
TEST_P(BatchNormTest, TakesOverWhatIsBesideIt) {
  for (const Dims& dims : {Dims{6, 3}, {2, 17, 3, 4}, {40, 9, 33, 31}}) {
    const Dims channels = {dims[1]};
    TestIpu ipu;
    const auto image = [&](unsigned seed = 0) {
      return ipu.AddImage(GetParam(), dims, seed == 0 ? Values() : Random(dims, seed));
    };
    const auto vector = [&](unsigned seed = 0) {
      return ipu.Add(FLOAT32, channels, seed == 0 ? Values() : Random(channels, seed, 0.5, 2));
    };
    const auto run = [&](const std::string& op, const std::vector<uint32_t>& inputs,
                         const std::vector<uint32_t>& outputs) {
      ipu.Run(absl::StrCat(op, " inputs:[", absl::StrJoin(inputs, ","), "] outputs:[",
                           absl::StrJoin(outputs, ","), "]"));
    };
    const uint32_t x = image(1), addend = image(2), scale = vector(3), offset = vector(4),
                   mean = vector(), variance = vector();
    const uint32_t y = image(), sum = image(), relu = image(), inferred = image(), fused = image();
    run("batch_norm{epsilon:1e-5}", {x, scale, offset}, {y, mean, variance});
    run("binary{operator:ADD}", {y, addend}, {sum});
    run("unary{operator:RELU}", {sum}, {relu});
    run("batch_norm{epsilon:1e-5 add:true activation:RELU}", {x, scale, offset, addend},
        {fused, mean, variance});
    EXPECT_EQ(ipu.Read(fused), ipu.Read(relu));
    run("batch_norm_inference{epsilon:1e-5 add:true activation:RELU}",
        {x, scale, offset, mean, variance, addend}, {inferred});
    EXPECT_EQ(ipu.Read(inferred), ipu.Read(relu));

    const uint32_t dy1 = image(5), dy2 = image(6), dy = image(), masked = image(), dx = image(),
                   kept = image(), fused_dx = image();
    const uint32_t dscale = vector(), doffset = vector(), fused_dscale = vector(),
                   fused_doffset = vector();
    run("binary{operator:ADD}", {dy1, dy2}, {dy});
    run("binary{operator:RELU_GRADIENT}", {relu, dy}, {masked});
    run("batch_norm_gradient{epsilon:1e-5}", {x, masked, scale, mean, variance},
        {dx, dscale, doffset});
    for (const char* keep : {"false", "true"}) {
      std::vector<uint32_t> outputs = {fused_dx, fused_dscale, fused_doffset};
      if (*keep == 't') outputs.push_back(kept);
      run(absl::StrCat("batch_norm_gradient{epsilon:1e-5 add:true activation:RELU keep:", keep,
                       "}"),
          {x, dy1, scale, mean, variance, dy2, relu}, outputs);
      EXPECT_EQ(ipu.Read(fused_dx), ipu.Read(dx));
      EXPECT_EQ(ipu.Read(fused_dscale), ipu.Read(dscale));
      EXPECT_EQ(ipu.Read(fused_doffset), ipu.Read(doffset));
    }
    EXPECT_EQ(ipu.Read(kept), ipu.Read(masked));
  }
}

// The gradient finds y again where the activation's output is not an input.
TEST_P(BatchNormTest, RecomputesWhatTheActivationTook) {
  for (const std::string activation : {"RELU", "RELU6", "SILU"}) {
    for (const Dims& dims : {Dims{6, 3}, {2, 17, 3, 4}, {40, 9, 33, 31}}) {
      SCOPED_TRACE(activation);
      const Dims channels = {dims[1]};
      TestIpu ipu;
      const auto image = [&](const Values& values = {}) {
        return ipu.AddImage(GetParam(), dims, values);
      };
      const auto vector = [&](const Values& values = {}) {
        return ipu.Add(FLOAT32, channels, values);
      };
      const auto run = [&](const std::string& op, const std::vector<uint32_t>& inputs,
                           const std::vector<uint32_t>& outputs) {
        ipu.Run(absl::StrCat(op, " inputs:[", absl::StrJoin(inputs, ","), "] outputs:[",
                             absl::StrJoin(outputs, ","), "]"));
      };
      const uint32_t x = image(Random(dims, 1)), dy = image(Random(dims, 2)),
                     scale = vector(Random(channels, 3, 1, 6)),
                     offset = vector(Random(channels, 4)), mean = vector(), variance = vector();
      const uint32_t y = image(), activated = image(), fused = image(), slope = image();
      run("batch_norm{epsilon:1e-5}", {x, scale, offset}, {y, mean, variance});
      run(absl::StrCat("unary{operator:", activation, "}"), {y}, {activated});
      run(absl::StrCat("batch_norm{epsilon:1e-5 activation:", activation, "}"), {x, scale, offset},
          {fused, mean, variance});
      EXPECT_EQ(ipu.Read(fused), ipu.Read(activated));
      const uint32_t dx = image(), dscale = vector(), doffset = vector();
      run(absl::StrCat("binary{operator:", activation, "_GRADIENT}"), {y, dy}, {slope});
      run("batch_norm_gradient{epsilon:1e-5}", {x, slope, scale, mean, variance},
          {dx, dscale, doffset});
      const uint32_t fused_dx = image(), fused_dscale = vector(), fused_doffset = vector(),
                     kept = image();
      run(absl::StrCat("batch_norm_gradient{epsilon:1e-5 keep:true recompute:true activation:",
                       activation, "}"),
          {x, dy, scale, mean, variance, offset}, {fused_dx, fused_dscale, fused_doffset, kept});
      EXPECT_EQ(ipu.Read(kept), ipu.Read(slope));
      EXPECT_EQ(ipu.Read(fused_dx), ipu.Read(dx));
      EXPECT_EQ(ipu.Read(fused_dscale), ipu.Read(dscale));
      EXPECT_EQ(ipu.Read(fused_doffset), ipu.Read(doffset));
    }
  }
}

// Sums of float16 elements, or of as many float32 ones, would lose most of these values' digits.
TEST(BatchNormOfManyTest, IsTheFloat32ResultRoundedOnce) {
  const Dims dims = {50, 2, 40, 50}, channels = {2};  // 100,000 elements of a channel
  Values x = Random(dims, 7, 99, 101);
  for (double& value : x) value = Round(value, FLOAT16);
  const Values scale = {1.5, -0.75}, offset = {0.125, 3};
  const auto normalize = [&](program::v1::DataType type) {
    TestIpu ipu;
    const uint32_t in = ipu.AddImage(type, dims, x), out = ipu.AddImage(type, dims),
                   s = ipu.Add(FLOAT32, channels, scale), o = ipu.Add(FLOAT32, channels, offset),
                   mean = ipu.Add(FLOAT32, channels), variance = ipu.Add(FLOAT32, channels);
    ipu.Run(absl::StrCat("batch_norm{epsilon:1e-5} inputs:[", in, ",", s, ",", o, "] outputs:[",
                         out, ",", mean, ",", variance, "]"));
    return ipu.Read(out);
  };
  const Values floats = normalize(FLOAT32);
  ExpectRounded(normalize(FLOAT16), floats, FLOAT16);
  const Moments moments(dims, x);
  Values expected(x.size());
  ForElements(dims, [&](size_t i, size_t c) {
    expected[i] =
        (x[i] - moments.mean[c]) / std::sqrt(moments.variance[c] + kEpsilon) * scale[c] + offset[c];
  });
  ExpectClose(floats, expected, FLOAT32, 1e-6, 1e-5);
}

}  // namespace
}  // namespace vpod::engine
