#include <algorithm>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;
using testing::HasSubstr;

class LossTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, LossTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Reference {
  Values loss, probabilities;
};

Reference CrossEntropy(const Values& logits, const Values& labels) {
  const size_t classes = logits.size() / labels.size();
  Reference result;
  for (size_t row = 0; row < labels.size(); ++row) {
    const double* x = logits.data() + row * classes;
    const double largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(x[c] - largest);
    for (size_t c = 0; c < classes; ++c) {
      result.probabilities.push_back(std::exp(x[c] - largest) / sum);
    }
    result.loss.push_back(std::log(sum) + largest - x[static_cast<size_t>(labels[row])]);
  }
  return result;
}

std::string Text(uint32_t logits, uint32_t labels, uint32_t loss, uint32_t probabilities) {
  return absl::StrCat("softmax_cross_entropy{} inputs:", logits, " inputs:", labels,
                      " outputs:", loss, " outputs:", probabilities);
}

TEST_P(LossTest, LossProbabilitiesAndGradient) {
  for (const auto& [rows, classes] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 2}, {5, 10}, {33, 7}, {2, 1000}}) {
    SCOPED_TRACE(absl::StrCat(rows, "x", classes));
    TestIpu ipu;
    const Dims dims{rows, classes};
    const auto last_class = static_cast<int>(classes - 1);
    const uint32_t logits = ipu.Add(GetParam(), dims, Random(dims, 1, -5, 5));
    const Values targets = RandomIntegers({rows}, 2, 0, last_class);
    const uint32_t labels = ipu.Add(INT32, {rows}, targets), loss = ipu.Add(GetParam(), {rows});
    const uint32_t probabilities = ipu.Add(GetParam(), dims);
    ipu.Run(Text(logits, labels, loss, probabilities));
    const Reference expected = CrossEntropy(ipu.Read(logits), targets);
    ExpectClose(ipu.Read(loss), expected.loss, GetParam());
    ExpectClose(ipu.Read(probabilities), expected.probabilities, GetParam(), 1e-6, 1e-9);

    const uint32_t scale = ipu.Add(GetParam(), {rows}, Random({rows}, 3));
    const uint32_t gradient = ipu.Add(GetParam(), dims);
    ipu.Run(absl::StrCat("softmax_cross_entropy_gradient{} inputs:", probabilities,
                         " inputs:", labels, " inputs:", scale, " outputs:", gradient));
    const Values p = ipu.Read(probabilities), factor = ipu.Read(scale);
    Values expected_gradient(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const size_t row = i / classes;
      expected_gradient[i] = (p[i] - (targets[row] == i % classes)) * factor[row];
    }
    ExpectClose(ipu.Read(gradient), expected_gradient, GetParam(), 1e-6, 1e-7);
  }
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

// The compiler may give both the same place.
TEST_P(LossTest, ProbabilitiesMayLieWhereTheLogitsAre) {
  TestIpu ipu;
  const Dims dims{4, 5};
  const uint32_t logits = ipu.Add(GetParam(), dims, Random(dims, 4));
  const Values targets{4, 0, 2, 1};
  const uint32_t labels = ipu.Add(INT32, {4}, targets), loss = ipu.Add(GetParam(), {4});
  const Reference expected = CrossEntropy(ipu.Read(logits), targets);
  ipu.Run(Text(logits, labels, loss, logits));
  ExpectClose(ipu.Read(loss), expected.loss, GetParam());
  ExpectClose(ipu.Read(logits), expected.probabilities, GetParam());
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

}  // namespace
}  // namespace vpod::engine
