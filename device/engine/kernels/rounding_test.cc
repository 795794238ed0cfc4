// Stochastic rounding: its distribution, what it depends on, and that every op does it.
#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_join.h"
#include "device/engine/kernels/convolution.h"
#include "device/engine/kernels/kernel_test_util.h"
#include "device/program/op.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

// The inputs that the random bits follow from.
struct Source {
  uint32_t seed = 7, counter = 0, number = 1;

  // Adds the tensors to an IPU; the field of an instruction.
  std::string Text(TestIpu& ipu) const {
    const uint32_t seeds = ipu.Add(UINT32, {2}, {static_cast<double>(seed), 11}),
                   counts = ipu.Add(UINT32, {}, {static_cast<double>(counter)});
    return absl::StrCat(" rounding{seed:", seeds, " counter:", counts, " number:", number, "}");
  }
};

// `values` as float16.
Values Rounded(const Values& values, const Dims& dims, const Source& source,
               const Dims& strides = {}) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, dims, values), y = ipu.Add(FLOAT16, dims, {}, false, strides);
  ipu.Run(absl::StrCat("cast{type:FLOAT16} inputs:", x, " outputs:", y, source.Text(ipu)));
  return ipu.Read(y);
}

double StepAt(double x) {
  return x == 0 ? 0x1p-24 : std::ldexp(1.0, std::max(std::ilogb(x) - 10, -24));
}

constexpr int64_t kMany = 200'000;

TEST(StochasticRoundingTest, TheMeanIsTheValue) {
  uint32_t counter = 0;
  for (double size :
       {1.0 / 3, 1 + 0x1p-11, 1 + 0x1p-23, 2 - 0x1p-23, 1000.3, 2047.1, 12345.6, 65500.0, 6.2e-5,
        0x1p-14 - 0x1p-30, 3.3e-5, 1e-6, 0x1p-24 * 1.01, 2e-8, 0x1p-25, 0x1p-26 * 1.5}) {
    for (double sign : {1, -1}) {
      const double x = static_cast<float>(sign * size), step = StepAt(x);
      const double low = std::floor(x / step) * step, share = (x - low) / step;
      const Values values = Rounded(Values(kMany, x), {kMany}, {.counter = ++counter});
      double mean = 0;
      for (double value : values) {
        ASSERT_TRUE(value == low || value == low + step) << x << " became " << value;
        mean += value / kMany;
      }
      EXPECT_NEAR(mean, x, 5 * step * std::sqrt(share * (1 - share) / kMany)) << x;
    }
  }
}

// Neighbours are not correlated, nor are elements of different blocks of random words.
TEST(StochasticRoundingTest, ElementsAreRoundedByThemselves) {
  const Values values = Rounded(Values(kMany, 1 + 0x1p-11), {kMany}, {});
  for (size_t distance : {1, 2, 3, 4, 64, 256, 1024}) {
    double both = 0;
    for (size_t i = distance; i < values.size(); ++i)
      both += (values[i] > 1) == (values[i - distance] > 1) ? 1 : -1;
    EXPECT_LT(std::fabs(both), 5 * std::sqrt(kMany)) << distance;
  }
}

TEST(StochasticRoundingTest, ExactValuesStay) {
  Values halves;
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    _Float16 half;
    std::memcpy(&half, &pattern, sizeof(half));
    if (half == half) halves.push_back(static_cast<double>(half));
  }
  // Among others that are not exact.
  halves.push_back(1.0 / 3);
  Values expected = halves;
  expected.back() = Rounded(halves, {static_cast<int64_t>(halves.size())}, {}).back();
  const Values actual = Rounded(halves, {static_cast<int64_t>(halves.size())}, {});
  EXPECT_EQ(actual, expected);
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(std::signbit(actual[i]), std::signbit(expected[i])) << expected[i];
}

TEST(StochasticRoundingTest, OverflowAndNotANumberAreAsInRoundingToNearest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Values values, expected;
  for (double sign : {1, -1}) {
    for (double size : {65504.1, 65519.9})
      values.push_back(sign * size), expected.push_back(sign * 65504);
    for (double size : {65520.0, 70000.0, 3e38, kInfinity})
      values.push_back(sign * size), expected.push_back(sign * kInfinity);
  }
  values.push_back(0.1);  // so that there is something to round
  Values actual = Rounded(values, {static_cast<int64_t>(values.size())}, {});
  actual.pop_back();
  EXPECT_EQ(actual, expected);
  EXPECT_TRUE(std::isnan(Rounded({std::nan(""), 0.1}, {2}, {})[0]));
}

TEST(StochasticRoundingTest, FollowsFromSeedCounterAndNumber) {
  const Values values = Random({1000}, 1);
  const Values first = Rounded(values, {1000}, {});
  EXPECT_EQ(Rounded(values, {1000}, {}), first);
  std::set<Values> different = {first};
  for (const Source& source : {Source{.seed = 8}, Source{.counter = 1}, Source{.number = 2}})
    different.insert(Rounded(values, {1000}, source));
  EXPECT_EQ(different.size(), 4u);
}

// Chunks, rows and blocks of random words begin elsewhere.
TEST(StochasticRoundingTest, DoesNotDependOnTheLayout) {
  const Dims dims = {3, 70, 23, 29};
  const Values values = Random(dims, 1);
  const Values row_major = Rounded(values, dims, {});
  EXPECT_EQ(Rounded(values, dims, {}, program::ChannelsLastStrides(dims)), row_major);
  EXPECT_EQ(Rounded(values, dims, {}, {70 * 23 * 31 + 5, 23 * 31, 31, 1}), row_major);
  EXPECT_EQ(Rounded(values, dims, {}, {1, 3 * 23 * 29, 3, 3 * 23}), row_major);
  const Dims matrix = {301, 407};
  const Values of_matrix = Random(matrix, 2);
  EXPECT_EQ(Rounded(of_matrix, matrix, {}, {1, 301}), Rounded(of_matrix, matrix, {}));
}

// By oneDNN and by loops.
TEST(StochasticRoundingTest, WeightGradientsDoNotDependOnTheLayout) {
  constexpr char kWindow[] =
      "window{kernel:[3,2] stride:[1,1] dilation:[1,1] pad_before:[0,0] pad_after:[0,0]}";
  const Dims weights = {12, 10, 3, 2}, image = {2, 10, 6, 5}, result = {2, 12, 4, 4};
  for (bool loops : {false, true}) {
    Values first;
    for (const Dims& strides : {Dims(), program::OutputsLastStrides(weights)}) {
      TestIpu ipu;
      const uint32_t x = ipu.AddImage(FLOAT16, image, Random(image, 1)),
                     dy = ipu.AddImage(FLOAT16, result, Random(result, 2)),
                     dw = ipu.Add(FLOAT16, weights, {}, false, strides);
      const std::string text =
          absl::StrCat("convolution{pass:WEIGHT_GRADIENT groups:1 ", kWindow, "} inputs:[", x, ",",
                       dy, "] outputs:", dw, Source{}.Text(ipu));
      program::v1::Instruction instruction;
      ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction));
      const auto kernel = PrepareConvolution(ipu.proto(), instruction, {.loops = loops});
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      ASSERT_TRUE(RunPhases(*kernel, ipu.Arena()).ok());
      if (first.empty()) first = ipu.Read(dw);
      EXPECT_EQ(ipu.Read(dw), first);
    }
  }
}

// --- Every op ---

// An operand. Those of FLOAT16 are also tried as FLOAT32.
struct Given {
  DataType type;
  Dims dims;
  Values values;       // empty: an output
  bool image = false;  // stored with the channels innermost
  int updates = -1;    // the output is this input
};

struct Case {
  std::string attributes;
  std::vector<Given> inputs, outputs;
};

Given Half(const Dims& dims, uint32_t seed) {
  Values values = Random(dims, seed, 0.25, 1.75);
  for (double& value : values) value = Round(value, FLOAT16);
  return {FLOAT16, dims, std::move(values)};
}
Given Image(const Dims& dims, uint32_t seed) {
  Given image = Half(dims, seed);
  image.image = true;
  return image;
}
Given Floats(const Dims& dims, uint32_t seed) {
  return {FLOAT32, dims, Random(dims, seed, 0.5, 1)};
}
Given Out(const Dims& dims, bool image = false) { return {FLOAT16, dims, {}, image}; }
Given OutFloats(const Dims& dims) { return {FLOAT32, dims}; }
Given Updated(int input) { return {FLOAT16, {}, {}, false, input}; }

std::vector<Case> Cases() {
  const Dims image = {2, 5, 4, 6}, pooled = {2, 5, 2, 3}, channels = {5};
  const std::string window =
      "window{kernel:[2,2] stride:[2,2] dilation:[1,1] pad_before:[0,0] pad_after:[0,0]}";
  const std::string conv =
      "window{kernel:[3,3] stride:[1,1] dilation:[1,1] pad_before:[1,1] "
      "pad_after:[1,1]} groups:1";
  const Dims weights = {7, 5, 3, 3}, result = {2, 7, 4, 6};
  Values places;  // two gradients go to one element
  for (size_t i = 0; i < NumElements({2, 5, 3, 5}); ++i) places.push_back(7);
  return {
      {"unary{operator:TANH}", {Image(image, 1)}, {Out(image, true)}},
      {"binary{operator:MULTIPLY}", {Image(image, 1), Half({5, 1, 1}, 2)}, {Out(image, true)}},
      {"binary{operator:DIVIDE}", {Half({9, 40}, 1), Half({40}, 2)}, {Out({9, 40})}},
      {"cast{type:FLOAT16}", {Floats({300}, 1)}, {Out({300})}},
      {"reduce{operator:MEAN axes:[2,3]}", {Image(image, 1)}, {Out({2, 5})}},
      {"reduce{operator:MEAN axes:0}", {Image(image, 1)}, {Out({5, 4, 6})}},
      {"reduce{operator:MEAN axes:0}", {Half({70'000, 2}, 1)}, {Out({2})}},
      {"mat_mul{}", {Half({10, 20}, 1), Half({20, 30}, 2)}, {Out({10, 30})}},
      {"mat_mul{}", {Half({5, 10, 20}, 1), Half({5, 20, 30}, 2)}, {Out({5, 10, 30})}},
      {"softmax{}", {Half({9, 40}, 1)}, {Out({9, 40})}},
      {"softmax_gradient{}", {Half({9, 40}, 1), Half({9, 40}, 2)}, {Out({9, 40})}},
      {"layer_norm{epsilon:1}",
       {Half({9, 40}, 1), Half({40}, 2), Half({40}, 3)},
       {Out({9, 40}), OutFloats({9}), OutFloats({9})}},
      {"layer_norm_gradient{}",
       {Half({9, 40}, 1), Half({9, 40}, 2), Floats({9}, 3), Floats({9}, 4), Half({40}, 5)},
       {Out({9, 40})}},
      {"convolution{pass:FORWARD " + conv + "}",
       {Image(image, 1), Half(weights, 2)},
       {Out(result, true)}},
      {"convolution{pass:INPUT_GRADIENT " + conv + " image_size:[4,6]}",
       {Image(result, 1), Half(weights, 2)},
       {Out(image, true)}},
      {"convolution{pass:WEIGHT_GRADIENT " + conv + "}",
       {Image(image, 1), Image(result, 2)},
       {Out(weights)}},
      {"batch_norm{epsilon:1e-5}",
       {Image(image, 1), Floats(channels, 2), Floats(channels, 3)},
       {Out(image, true), OutFloats(channels), OutFloats(channels)}},
      {"batch_norm{epsilon:1e-5 activation:RELU}",
       {Image(image, 1), Floats(channels, 2), Floats(channels, 3)},
       {Out(image, true), OutFloats(channels), OutFloats(channels)}},
      {"batch_norm_inference{epsilon:1e-5}",
       {Image(image, 1), Floats(channels, 2), Floats(channels, 3), Floats(channels, 4),
        Floats(channels, 5)},
       {Out(image, true)}},
      {"batch_norm_gradient{epsilon:1e-5}",
       {Image(image, 1), Image(image, 2), Floats(channels, 3), Floats(channels, 4),
        Floats(channels, 5)},
       {Out(image, true), OutFloats(channels), OutFloats(channels)}},
      {"max_pool_gradient{window{kernel:[2,2] stride:[1,1] dilation:[1,1] pad_before:[0,0] "
       "pad_after:[0,0]} image_size:[4,6]}",
       {Image({2, 5, 3, 5}, 1), {INT32, {2, 5, 3, 5}, places, true}},
       {Out(image, true)}},
      {"average_pool{" + window + "}", {Image(image, 1)}, {Out(pooled, true)}},
      {"average_pool_gradient{window{kernel:[2,3] stride:[2,3] dilation:[1,1] pad_before:[0,0] "
       "pad_after:[0,0]} image_size:[4,6]}",
       {Image({2, 5, 2, 2}, 1)},
       {Out(image, true)}},
      {"softmax_cross_entropy{}",
       {Half({9, 30}, 1), {INT32, {9}, Values(9, 3)}},
       {Out({9}), Out({9, 30})}},
      {"softmax_cross_entropy_gradient{}",
       {Half({9, 30}, 1), {INT32, {9}, Values(9, 3)}, Half({9}, 2)},
       {Out({9, 30})}},
      {"sgd{gradient_scale:1}",
       {Half({300}, 1), Floats({300}, 2), {FLOAT32, {4}, {0.01, 0, 0, 0}}, {FLOAT32, {}, {1}}},
       {Updated(0)}},
      {"adam{gradient_scale:1}",
       {Half({300}, 1),
        Floats({300}, 2),
        {FLOAT32, {5}, {0.01, 0, 0.9, 0.99, 1e-8}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {300}, Values(300)},
        {FLOAT32, {300}, Values(300)}},
       {Updated(0), Updated(5), Updated(6)}},
      {"rms_prop{gradient_scale:1}",
       {Half({300}, 1),
        Floats({300}, 2),
        {FLOAT32, {5}, {0.01, 0, 0.9, 1e-8, 0}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {300}, Values(300)}},
       {Updated(0), Updated(5)}},
      {"lamb{gradient_scale:1}",
       {Half({300}, 1),
        Floats({300}, 2),
        {FLOAT32, {5}, {0.01, 0, 0.9, 0.99, 1e-6}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {300}, Values(300)},
        {FLOAT32, {300}, Values(300)}},
       {Updated(0), Updated(5), Updated(6)}},
      {"lamb_moments{gradient_scale:1}",
       {Half({300}, 1),
        Floats({300}, 2),
        {FLOAT32, {5}, {0.01, 0, 0.9, 0.99, 1e-6}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {}, {1}},
        Half({300}, 3),
        Half({300}, 4)},
       {OutFloats({2}), Updated(5), Updated(6)}},
      {"lamb_step{}",
       {Half({300}, 1),
        {FLOAT32, {2}, {300, 200}},
        {FLOAT32, {5}, {0.01, 0, 0.9, 0.99, 1e-6}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {}, {1}},
        Floats({300}, 2),
        {FLOAT32, {300}, Values(300, 0.5)}},
       {Updated(0)}},
      {"lars{gradient_scale:1}",
       {Half({300}, 1),
        Floats({300}, 2),
        {FLOAT32, {5}, {0.01, 0, 0.9, 0.5, 1e-8}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {}, {1}},
        {FLOAT32, {300}, Values(300)}},
       {Updated(0), Updated(5)}},
      {"cumulate{operator:SUM axis:1}", {Half({9, 30}, 1)}, {Out({9, 30})}},
  };
}

// The float16 outputs of the case when its float16 operands are of `half`.
Values RunCase(const Case& each, DataType half, const Source* source) {
  TestIpu ipu;
  const auto type = [&](const Given& given) { return given.type == FLOAT16 ? half : given.type; };
  const auto add = [&](const Given& given) {
    return given.image ? ipu.AddImage(type(given), given.dims, given.values)
                       : ipu.Add(type(given), given.dims, given.values);
  };
  std::vector<uint32_t> inputs, outputs, read;
  for (const Given& input : each.inputs) inputs.push_back(add(input));
  for (const Given& output : each.outputs) {
    outputs.push_back(output.updates < 0 ? add(output)
                                         : inputs[static_cast<size_t>(output.updates)]);
    const Given& as =
        output.updates < 0 ? output : each.inputs[static_cast<size_t>(output.updates)];
    if (as.type == FLOAT16) read.push_back(outputs.back());
  }
  std::string attributes = each.attributes;
  if (half == FLOAT32 && attributes == "cast{type:FLOAT16}") attributes = "cast{type:FLOAT32}";
  ipu.Run(absl::StrCat(attributes, " inputs:[", absl::StrJoin(inputs, ","), "] outputs:[",
                       absl::StrJoin(outputs, ","), "]",
                       source == nullptr ? "" : source->Text(ipu)));
  Values values;
  for (uint32_t tensor : read) {
    const Values of_tensor = ipu.Read(tensor);
    values.insert(values.end(), of_tensor.begin(), of_tensor.end());
  }
  return values;
}

TEST(StochasticRoundingTest, OfEveryOpHasTheFloat32ResultAsItsMean) {
  constexpr int kDraws = 64;
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.attributes);
    const Values floats = RunCase(each, FLOAT32, nullptr);
    Values sums(floats.size());
    std::vector<bool> varies(floats.size());
    Values first;
    for (uint32_t draw = 0; draw < kDraws; ++draw) {
      const Source source{.counter = draw};
      const Values halves = RunCase(each, FLOAT16, &source);
      if (draw == 0) first = halves;
      ASSERT_EQ(halves.size(), floats.size());
      for (size_t i = 0; i < halves.size(); ++i) {
        EXPECT_LT(std::fabs(halves[i] - floats[i]), StepAt(floats[i])) << i;
        sums[i] += halves[i];
        varies[i] = varies[i] || halves[i] != first[i];
      }
    }
    // The deviation of the mean is at most a sixteenth of a step.
    for (size_t i = 0; i < floats.size(); ++i)
      EXPECT_NEAR(sums[i] / kDraws, floats[i], 0.375 * StepAt(floats[i])) << i;
    const auto number = std::count(varies.begin(), varies.end(), true);
    EXPECT_GT(number,
              each.attributes.find("max_pool") == 0 ? 4 : static_cast<int>(floats.size()) / 3);
  }
}

TEST(StochasticRoundingTest, TheOpsAboveAreAllThatRound) {
  std::set<std::string> tried, round;
  for (const Case& each : Cases())
    tried.insert(each.attributes.substr(0, each.attributes.find('{')));
  const auto* oneof = Instruction::descriptor()->FindOneofByName("attributes");
  for (int i = 0; i < oneof->field_count(); ++i) {
    const auto kind = static_cast<program::OpKind>(oneof->field(i)->number());
    if (program::FindOp(kind)->rounds) round.insert(program::OpName(kind));
  }
  EXPECT_EQ(tried, round);
}

}  // namespace
}  // namespace vpod::engine
