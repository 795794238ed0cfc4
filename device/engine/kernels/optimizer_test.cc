#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class OptimizerTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Hyperparameters {
  double momentum = 0, dampening = 0, weight_decay = 0, gradient_scale = 1;
  bool nesterov = false;

  std::string Text() const {
    return absl::StrCat(" momentum:", momentum, " dampening:", dampening,
                        " weight_decay:", weight_decay, " gradient_scale:", gradient_scale,
                        " nesterov:", nesterov);
  }
};

const Hyperparameters kMomenta[] = {
    {.momentum = 0.9},
    {.momentum = 0.9, .nesterov = true},
    {.momentum = 0.5, .dampening = 0.25},
    {.momentum = 0.9, .weight_decay = 0.1, .gradient_scale = 0.125},
    {.momentum = 0.8,
     .dampening = 0.5,
     .weight_decay = 0.01,
     .gradient_scale = 2,
     .nesterov = true},
};

TEST_P(OptimizerTest, SgdWithoutVelocity) {
  for (const Hyperparameters& k : {Hyperparameters{}, Hyperparameters{.weight_decay = 0.1},
                                   Hyperparameters{.weight_decay = 0.01, .gradient_scale = 0.25}}) {
    SCOPED_TRACE(k.Text());
    TestIpu ipu;
    const Dims dims{9, 11};
    const uint32_t w = ipu.Add(GetParam(), dims, Random(dims, 1));
    const uint32_t g = ipu.Add(GetParam(), dims, Random(dims, 2));
    const uint32_t rate = ipu.Add(FLOAT32, {}, {0.3});
    Values expected = ipu.Read(w);
    const Values gradient = ipu.Read(g);
    ipu.Run(absl::StrCat("sgd{", k.Text(), "} inputs:", w, " inputs:", g, " inputs:", rate,
                         " outputs:", w));
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] -= 0.3 * (k.gradient_scale * gradient[i] + k.weight_decay * expected[i]);
    }
    ExpectClose(ipu.Read(w), expected, GetParam(), 1e-6, 3e-7);
    EXPECT_EQ(ipu.Read(g), gradient);
  }
}

TEST_P(OptimizerTest, SgdWithVelocityOverSeveralSteps) {
  for (const Hyperparameters& k : kMomenta) {
    SCOPED_TRACE(k.Text());
    TestIpu ipu;
    const Dims dims{70};
    const uint32_t w = ipu.Add(GetParam(), dims, Random(dims, 3));
    const uint32_t v = ipu.Add(GetParam(), dims, Values(70, 0)), g = ipu.Add(GetParam(), dims);
    const uint32_t rate = ipu.Add(FLOAT32, {}, {0.1});
    for (int step = 0; step < 3; ++step) {
      ipu.Write(g, Random(dims, 10 + step));
      Values weights = ipu.Read(w), velocity = ipu.Read(v);
      const Values gradient = ipu.Read(g);
      ipu.Run(absl::StrCat("sgd{", k.Text(), "} inputs:", w, " inputs:", g, " inputs:", rate,
                           " inputs:", v, " outputs:", w, " outputs:", v));
      for (size_t i = 0; i < weights.size(); ++i) {
        const double u = k.gradient_scale * gradient[i] + k.weight_decay * weights[i];
        velocity[i] = k.momentum * velocity[i] + (1 - k.dampening) * u;
        weights[i] -= 0.1 * (k.nesterov ? u + k.momentum * velocity[i] : velocity[i]);
      }
      ExpectClose(ipu.Read(w), weights, GetParam());
      ExpectClose(ipu.Read(v), velocity, GetParam());
    }
  }
}

TEST_P(OptimizerTest, LearningRateIsReadInEachStep) {
  TestIpu ipu;
  const uint32_t w = ipu.Add(GetParam(), {1}, {1}), g = ipu.Add(GetParam(), {1}, {1});
  const uint32_t rate = ipu.Add(FLOAT32, {}, {0});
  const std::string text = absl::StrCat("sgd{gradient_scale:1} inputs:", w, " inputs:", g,
                                        " inputs:", rate, " outputs:", w);
  ipu.Run(text);
  EXPECT_EQ(ipu.Read(w), Values{1});
  ipu.Write(rate, {0.25});
  ipu.Run(text);
  EXPECT_EQ(ipu.Read(w), Values{0.75});
}

TEST_P(OptimizerTest, AccumulatesInDouble) {
  TestIpu ipu;
  const Dims dims{3, 23};
  const uint32_t accumulator = ipu.Add(FLOAT32, dims, Random(dims, 4), /*wide=*/true);
  const uint32_t g = ipu.Add(GetParam(), dims);
  Values expected = ipu.Read(accumulator);
  for (uint32_t step = 0; step < 10; ++step) {
    ipu.Write(g, Random(dims, 20 + step, -1000, 1000));
    ipu.Run(
        absl::StrCat("accumulate{} inputs:", accumulator, " inputs:", g, " outputs:", accumulator));
    const Values gradient = ipu.Read(g);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += gradient[i];
  }
  EXPECT_EQ(ipu.Read(accumulator), expected);  // to the bit
}

TEST(AccumulateTest, SmallGradientsAreNotLostBesideLargeOnes) {
  TestIpu ipu;
  const uint32_t accumulator = ipu.Add(FLOAT32, {1}, {0}, /*wide=*/true);
  const uint32_t g = ipu.Add(FLOAT32, {1}, {1 << 30});
  const std::string text =
      absl::StrCat("accumulate{} inputs:", accumulator, " inputs:", g, " outputs:", accumulator);
  ipu.Run(text);
  ipu.Write(g, {0.125});
  for (int i = 0; i < 8; ++i) ipu.Run(text);
  EXPECT_EQ(ipu.Read(accumulator), Values{(1 << 30) + 1.0});
}

TEST(KernelTest, CommunicationStepsAndRepeatsAreNotKernels) {
  for (const char* text : {"", "repeat{count:1}", "stream_in{}", "stream_out{}", "exchange{}",
                           "call{}", "if{}", "while{}", "all_reduce{}"}) {
    program::v1::Instruction instruction;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction));
    EXPECT_EQ(PrepareKernel({}, instruction).status().code(), absl::StatusCode::kInternal) << text;
  }
}

}  // namespace
}  // namespace vpod::engine
