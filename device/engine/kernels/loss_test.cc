#include <algorithm>
#include <optional>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class LossTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, LossTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Options {
  double smoothing = 0;
  std::optional<int> ignored;

  std::string Text() const {
    std::string text = absl::StrCat("{label_smoothing:", smoothing);
    if (ignored) absl::StrAppend(&text, " ignored_label:", *ignored);
    return text + "}";
  }
};

struct Reference {
  Values loss, probabilities, targets;  // targets [rows, classes]; 0 in ignored rows
};

Reference CrossEntropy(const Values& logits, const Values& labels, const Options& options = {}) {
  const size_t classes = logits.size() / labels.size();
  const double share = options.smoothing / static_cast<double>(classes);
  Reference result;
  for (size_t row = 0; row < labels.size(); ++row) {
    const double* x = logits.data() + row * classes;
    const bool ignored = options.ignored && labels[row] == *options.ignored;
    const double largest = *std::max_element(x, x + classes);
    double sum = 0, loss = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(x[c] - largest);
    for (size_t c = 0; c < classes; ++c) {
      const double log_probability = x[c] - largest - std::log(sum);
      const double one = labels[row] == static_cast<double>(c) ? 1 : 0;
      const double target = ignored ? 0 : (1 - options.smoothing) * one + share;
      result.probabilities.push_back(std::exp(log_probability));
      result.targets.push_back(target);
      loss -= target * log_probability;
    }
    result.loss.push_back(loss);
  }
  return result;
}

std::string Text(uint32_t logits, uint32_t labels, uint32_t loss, uint32_t probabilities,
                 const Options& options = {}) {
  return absl::StrCat("softmax_cross_entropy", options.Text(), " inputs:", logits,
                      " inputs:", labels, " outputs:", loss, " outputs:", probabilities);
}

std::string GradientText(uint32_t probabilities, uint32_t labels, uint32_t scale, uint32_t gradient,
                         const Options& options = {}) {
  return absl::StrCat("softmax_cross_entropy_gradient", options.Text(), " inputs:", probabilities,
                      " inputs:", labels, " inputs:", scale, " outputs:", gradient);
}

void ExpectLossAndGradient(DataType type, const Dims& dims, const Values& targets,
                           const Options& options) {
  SCOPED_TRACE(absl::StrCat(Describe(type, dims), options.Text()));
  TestIpu ipu;
  const int64_t rows = dims[0], classes = dims[1];
  const uint32_t logits = ipu.Add(type, dims, Random(dims, 1, -5, 5));
  const uint32_t labels = ipu.Add(INT32, {rows}, targets), loss = ipu.Add(type, {rows});
  const uint32_t probabilities = ipu.Add(type, dims);
  ipu.Run(Text(logits, labels, loss, probabilities, options));
  const Reference expected = CrossEntropy(ipu.Read(logits), targets, options);
  ExpectClose(ipu.Read(loss), expected.loss, type);
  ExpectClose(ipu.Read(probabilities), expected.probabilities, type, 1e-6, 1e-9);

  const uint32_t scale = ipu.Add(type, {rows}, Random({rows}, 3));
  const uint32_t gradient = ipu.Add(type, dims);
  ipu.Run(GradientText(probabilities, labels, scale, gradient, options));
  const Values p = ipu.Read(probabilities), factor = ipu.Read(scale);
  Values expected_gradient(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    const size_t row = i / static_cast<size_t>(classes);
    const bool ignored = options.ignored && targets[row] == *options.ignored;
    expected_gradient[i] = ignored ? 0 : (p[i] - expected.targets[i]) * factor[row];
  }
  ExpectClose(ipu.Read(gradient), expected_gradient, type, 1e-6, 2e-7);
}

const std::vector<Dims> kShapes = {{1, 1}, {1, 2}, {5, 10}, {33, 7}, {2, 1000}, {301, 1000}};

TEST_P(LossTest, LossProbabilitiesAndGradient) {
  for (const Dims& dims : kShapes)
    ExpectLossAndGradient(GetParam(), dims,
                          RandomIntegers({dims[0]}, 2, 0, static_cast<int>(dims[1]) - 1), {});
}

TEST_P(LossTest, LabelSmoothing) {
  for (double smoothing : {0.125, 0.1, 1.0}) {
    for (const Dims& dims : kShapes)
      ExpectLossAndGradient(GetParam(), dims,
                            RandomIntegers({dims[0]}, 2, 0, static_cast<int>(dims[1]) - 1),
                            {.smoothing = smoothing});
  }
}

// The ignored label may be one of the classes, as a padding token is.
TEST_P(LossTest, IgnoredLabel) {
  for (int ignored : {-100, 0, 3}) {
    for (double smoothing : {0.0, 0.25}) {
      const double none = ignored;
      ExpectLossAndGradient(GetParam(), {7, 4}, {1, none, 0, 2, none, 3, 1},
                            {.smoothing = smoothing, .ignored = ignored});
      ExpectLossAndGradient(GetParam(), {3, 4}, {none, none, none},
                            {.smoothing = smoothing, .ignored = ignored});
    }
  }
}

// The mean over no row is 0 / 0, whose gradient must not get into ignored rows; nor must what their
// logits are.
TEST_P(LossTest, IgnoredRowsPassNothingOn) {
  TestIpu ipu;
  const Options options{.smoothing = 0.1, .ignored = -1};
  const double nan = std::nan("");
  const uint32_t logits = ipu.Add(GetParam(), {3, 2}, {nan, 1, HUGE_VAL, 0, -HUGE_VAL, 2});
  const uint32_t labels = ipu.Add(INT32, {3}, {-1, -1, -1}), loss = ipu.Add(GetParam(), {3});
  const uint32_t probabilities = ipu.Add(GetParam(), {3, 2}), dx = ipu.Add(GetParam(), {3, 2});
  const uint32_t scale = ipu.Add(GetParam(), {3}, {nan, HUGE_VAL, -HUGE_VAL});
  ipu.Run(Text(logits, labels, loss, probabilities, options));
  EXPECT_EQ(ipu.Read(loss), Values(3, 0));
  ipu.Run(GradientText(probabilities, labels, scale, dx, options));
  EXPECT_EQ(ipu.Read(dx), Values(6, 0));
}

TEST_P(LossTest, OtherLabelsOutOfRangeAreNamedBesideAnIgnoredOne) {
  TestIpu ipu;
  const uint32_t logits = ipu.Add(GetParam(), {3, 2}, Random({3, 2}, 5));
  const uint32_t labels = ipu.Add(INT32, {3}, {-100, 1, -1}), loss = ipu.Add(GetParam(), {3});
  const uint32_t probabilities = ipu.Add(GetParam(), {3, 2});
  const absl::Status status =
      ipu.TryRun(Text(logits, labels, loss, probabilities, {.ignored = -100}));
  EXPECT_EQ(status.message(), "label -1 in row 2 is outside 0 to 1");
}

TEST_P(LossTest, LargeLogitsDoNotOverflow) {
  TestIpu ipu;
  const uint32_t logits = ipu.Add(GetParam(), {3, 2}, {1000, 0, -1000, 1000, -30000, -30000});
  const uint32_t labels = ipu.Add(INT32, {3}, {0, 0, 1}), loss = ipu.Add(GetParam(), {3});
  const uint32_t probabilities = ipu.Add(GetParam(), {3, 2});
  ipu.Run(Text(logits, labels, loss, probabilities));
  ExpectClose(ipu.Read(loss), {0, 2000, std::log(2)}, GetParam());
  EXPECT_EQ(ipu.Read(probabilities), (Values{1, 0, 0, 1, 0.5, 0.5}));
}

TEST_P(LossTest, LabelsOutOfRangeAreNamed) {
  for (double label : {-1.0, 3.0, 2147483647.0, -2147483648.0}) {
    TestIpu ipu;
    const uint32_t logits = ipu.Add(GetParam(), {2, 3}, Random({2, 3}, 5));
    const uint32_t labels = ipu.Add(INT32, {2}, {2, label}), loss = ipu.Add(GetParam(), {2});
    const uint32_t probabilities = ipu.Add(GetParam(), {2, 3});
    const absl::Status status = ipu.TryRun(Text(logits, labels, loss, probabilities));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("label ", static_cast<int64_t>(label), " in row 1 is outside 0 to 2"));
  }
}

// Probabilities of about 1e-5, which float16 would not add up.
TEST(LossOfManyClassesTest, IsTheFloat32ResultRoundedOnce) {
  const Dims dims = {2, 100'000};
  Values x = Random(dims, 7, -3, 3);
  for (double& value : x) value = Round(value, FLOAT16);
  const Values of_rows = {17, 99'999};
  const auto soften = [&](DataType type) {
    TestIpu ipu;
    const uint32_t logits = ipu.Add(type, dims, x), labels = ipu.Add(INT32, {2}, of_rows),
                   loss = ipu.Add(type, {2}), probabilities = ipu.Add(type, dims);
    ipu.Run(Text(logits, labels, loss, probabilities));
    Values results = ipu.Read(probabilities);
    for (double value : ipu.Read(loss)) results.push_back(value);
    return results;
  };
  const Values floats = soften(FLOAT32);
  ExpectRounded(soften(FLOAT16), floats, FLOAT16);
  const Reference reference = CrossEntropy(x, of_rows);
  Values expected = reference.probabilities;
  for (double value : reference.loss) expected.push_back(value);
  ExpectClose(floats, expected, FLOAT32, 1e-6, 0);
}

}  // namespace
}  // namespace vpod::engine
