// Optimisers and random elements over several runs of a training program, on the IPUModel. The
// optimisers are compared with PyTorch's formulas in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::session {
namespace {

using compiler::AdamOptions;
using compiler::ProgramSpec;
using compiler::SgdOptions;
using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

// A run makes two updates; each is of three micro-batches of two rows in both replicas.
constexpr uint32_t kReplicas = 2, kIterations = 2, kAccumulation = 3, kRuns = 3;
constexpr size_t kRows = 2, kColumns = 3, kWeights = kColumns + 1;  // the last is the offset
constexpr size_t kMicroBatches = kIterations * kAccumulation;       // of a run and a replica

// The rows that a replica reads in a run, and what the model is to make of them.
struct Data {
  std::vector<float> x, t;
};
Data DataOf(uint32_t run, uint32_t replica) {
  const uint32_t seed = 10 * run + 2 * replica;
  return {RandomValues(kMicroBatches * kRows * kColumns, seed),
          RandomValues(kMicroBatches * kRows, seed + 1)};
}

const std::vector<float> kInitial = RandomValues(kWeights, 99);

std::unique_ptr<Session> Open(const Graph& graph, ProgramSpec spec, Tensor loss,
                              uint32_t ipus = 1) {
  spec.name = "train";
  spec.device_iterations = kIterations;
  spec.accumulation = kAccumulation;
  spec.loss = loss;
  const auto compiled = compiler::Compile(
      graph,
      {.ipus_per_replica = ipus, .total_replicas = kReplicas, .programs = {std::move(spec)}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto device =
      CreateIpuModel({.replicas = kReplicas, .ipus_per_replica = ipus, .compute_threads = 1});
  EXPECT_TRUE(device.ok()) << device.status();
  auto session = Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

// The mean square of x · w + b - t.
std::unique_ptr<Session> OpenRegression(const ProgramSpec& spec) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {kRows, kColumns}});
  const Tensor t = graph.Input("t", {FLOAT32, {kRows, 1}});
  const Tensor w =
      graph.Variable("w", {FLOAT32, {kColumns, 1}},
                     std::vector<float>(kInitial.begin(), kInitial.begin() + kColumns));
  const Tensor b = graph.Variable("b", {FLOAT32, {}}, {kInitial[kColumns]});
  const Tensor error = graph.Binary(program::v1::SUBTRACT, graph.Add(graph.MatMul(x, w), b), t);
  const Tensor loss = graph.Mean(graph.Unary(program::v1::SQUARE, error));
  graph.Output("loss", loss);
  return Open(graph, spec, loss);
}

struct Trained {
  std::vector<float> losses;   // by run, replica and micro-batch
  std::vector<float> weights;  // after each run
};

Trained Train(const std::vector<ProgramSpec>& spec_of_run) {
  Trained result;
  const auto session = OpenRegression(spec_of_run[0]);
  if (session == nullptr) return result;
  for (uint32_t run = 0; run < spec_of_run.size(); ++run) {
    EXPECT_TRUE(session
                    ->WriteFloats(compiler::HyperParametersName(0),
                                  compiler::HyperParameters(*spec_of_run[run].optimizer))
                    .ok());
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      const Data data = DataOf(run, replica);
      std::copy(data.x.begin(), data.x.end(), session->Stream<float>("x", replica)->begin());
      std::copy(data.t.begin(), data.t.end(), session->Stream<float>("t", replica)->begin());
    }
    const auto cycles = session->Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      const auto losses = *session->Stream<float>("loss", replica);
      result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    }
    for (const char* name : {"w", "b"}) {
      const std::vector<float> values = *session->ReadFloats(name, run % kReplicas);
      result.weights.insert(result.weights.end(), values.begin(), values.end());
    }
  }
  return result;
}

Trained Train(const ProgramSpec& spec) { return Train(std::vector<ProgramSpec>(kRuns, spec)); }

// --- In double ---

// PyTorch's optimisers, of one weight each.
struct Weight {
  double value = 0, velocity = 0, m = 0, v = 0, largest = 0;

  void Update(const SgdOptions& k, int step, double g) {
    if (k.maximize) g = -g;
    g += k.weight_decay * value;
    if (k.combined && k.momentum != 0) {
      const double share = (1 - k.dampening) * k.velocity_scaling;
      g -= k.weight_decay * value;
      if (step == 1) velocity = share * k.weight_decay * value;
      velocity += share * g;
      value -= k.learning_rate / k.velocity_scaling * velocity;
      velocity = k.momentum * velocity + share * k.weight_decay * value;
      return;
    }
    if (k.momentum != 0) {
      const bool dampen = step > 1 || k.dampen_all;
      velocity = k.momentum * velocity + (dampen ? 1 - k.dampening : 1) * g;
      g = k.nesterov ? g + k.momentum * velocity : velocity;
    } else if (k.dampen_all || k.combined) {
      g *= 1 - k.dampening;
    }
    value -= k.learning_rate * g;
  }

  void Update(const AdamOptions& k, int step, double g) {
    if (k.maximize) g = -g;
    if (k.decoupled_weight_decay) {
      value *= 1 - double{k.learning_rate} * k.weight_decay;
    } else {
      g += k.weight_decay * value;
    }
    m = k.beta1 * m + (1 - double{k.beta1}) * g;
    v = k.beta2 * v + (1 - double{k.beta2}) * g * g;
    largest = std::max(largest, v);
    const double unbiased_m = k.bias_correction ? m / (1 - std::pow(k.beta1, step)) : m,
                 of_amsgrad = k.amsgrad ? largest : v,
                 unbiased_v =
                     k.bias_correction ? of_amsgrad / (1 - std::pow(k.beta2, step)) : of_amsgrad;
    value -= k.learning_rate * unbiased_m / (std::sqrt(unbiased_v) + k.epsilon);
  }
};

using Weights = std::array<Weight, kWeights>;

// The loss of a micro-batch; adds its gradient, times `scale`.
double LossOf(const Weights& weights, const float* x, const float* t, double scale,
              std::array<double, kWeights>& gradient) {
  double loss = 0;
  for (size_t row = 0; row < kRows; ++row) {
    double error = weights[kColumns].value - t[row];
    for (size_t i = 0; i < kColumns; ++i) error += x[row * kColumns + i] * weights[i].value;
    loss += error * error / kRows;
    for (size_t i = 0; i < kWeights; ++i)
      gradient[i] += scale * 2 * error / kRows * (i < kColumns ? x[row * kColumns + i] : 1);
  }
  return loss;
}

Trained TrainInDouble(const std::vector<ProgramSpec>& spec_of_run) {
  Trained result;
  Weights weights;
  for (size_t i = 0; i < kWeights; ++i) weights[i].value = kInitial[i];
  int step = 0;
  for (uint32_t run = 0; run < spec_of_run.size(); ++run) {
    const ProgramSpec& spec = spec_of_run[run];
    const bool mean = spec.reduction == compiler::GradientReduction::kMean;
    const double scale = mean ? 1.0 / (kReplicas * kAccumulation) : 1;
    std::vector<double> losses(kReplicas * kMicroBatches);
    for (uint32_t iteration = 0; iteration < kIterations; ++iteration) {
      std::array<double, kWeights> gradient{};
      for (uint32_t replica = 0; replica < kReplicas; ++replica) {
        const Data data = DataOf(run, replica);
        for (size_t i = 0; i < kAccumulation; ++i) {
          const size_t batch = iteration * kAccumulation + i;
          losses[replica * kMicroBatches + batch] = LossOf(
              weights, &data.x[batch * kRows * kColumns], &data.t[batch * kRows], scale, gradient);
        }
      }
      ++step;
      for (size_t i = 0; i < kWeights; ++i) {
        if (const auto* adam = std::get_if<AdamOptions>(&*spec.optimizer)) {
          weights[i].Update(*adam, step, gradient[i]);
        } else {
          weights[i].Update(std::get<SgdOptions>(*spec.optimizer), step, gradient[i]);
        }
      }
    }
    result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    for (const Weight& weight : weights) result.weights.push_back(static_cast<float>(weight.value));
  }
  return result;
}

void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_FALSE(actual.empty());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-5 + 1e-5 * std::fabs(expected[i])) << i;
}

void ExpectAsInDouble(const std::vector<ProgramSpec>& spec_of_run) {
  const Trained actual = Train(spec_of_run), expected = TrainInDouble(spec_of_run);
  ExpectClose(actual.losses, expected.losses);
  ExpectClose(actual.weights, expected.weights);
}

void ExpectAsInDouble(const ProgramSpec& spec) {
  ExpectAsInDouble(std::vector<ProgramSpec>(kRuns, spec));
}

// --- Tests ---

TEST(TrainingTest, Sgd) {
  for (const SgdOptions& sgd : {
           SgdOptions{.learning_rate = 0.1f},
           SgdOptions{.learning_rate = 0.1f, .weight_decay = 0.25f},
           SgdOptions{.learning_rate = 0.05f, .momentum = 0.9f},
           SgdOptions{.learning_rate = 0.05f, .momentum = 0.9f, .dampening = 0.5f},
           SgdOptions{.learning_rate = 0.05f, .momentum = 0.9f, .nesterov = true},
           SgdOptions{.learning_rate = 0.05f, .momentum = 0.5f, .maximize = true},
           SgdOptions{
               .learning_rate = 0.1f, .momentum = 0.75f, .weight_decay = 0.1f, .nesterov = true},
           SgdOptions{
               .learning_rate = 0.1f, .momentum = 0.75f, .dampening = 0.25f, .weight_decay = 0.1f},
           SgdOptions{.learning_rate = 0.1f,
           .momentum = 0.75f,
           .dampening = 0.25f,
           .weight_decay = 0.1f,
           .dampen_all = true},
           SgdOptions{
               .learning_rate = 0.1f, .dampening = 0.25f, .weight_decay = 0.1f, .dampen_all = true},
           SgdOptions{
               .learning_rate = 0.1f, .dampening = 0.25f, .weight_decay = 0.1f, .combined = true},
           SgdOptions{.learning_rate = 0.1f,
           .momentum = 0.75f,
           .dampening = 0.25f,
           .weight_decay = 0.1f,
           .maximize = true,
           .combined = true,
           .velocity_scaling = 8},
       }) {
    SCOPED_TRACE(absl::StrCat("momentum ", sgd.momentum, " dampening ", sgd.dampening, " of all ",
                              sgd.dampen_all, " weight decay ", sgd.weight_decay, " nesterov ",
                              sgd.nesterov));
    ExpectAsInDouble({.optimizer = sgd});
    ExpectAsInDouble({.optimizer = sgd, .loss_scale = 100.0f});
  }
}

TEST(TrainingTest, Adam) {
  for (const AdamOptions& adam : {
           AdamOptions{.learning_rate = 0.1f},
           AdamOptions{.learning_rate = 0.1f, .weight_decay = 0.25f},
           AdamOptions{
               .learning_rate = 0.1f, .weight_decay = 0.25f, .decoupled_weight_decay = true},
           AdamOptions{.learning_rate = 0.1f, .beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 0.1f},
           AdamOptions{.learning_rate = 0.2f, .beta2 = 0.5f, .amsgrad = true},
           AdamOptions{.learning_rate = 0.1f, .maximize = true},
           AdamOptions{.learning_rate = 0.1f, .beta2 = 0.75f, .bias_correction = false},
           AdamOptions{.learning_rate = 0.1f,
           .beta1 = 0,
           .beta2 = 0.75f,
           .weight_decay = 0.25f,
           .decoupled_weight_decay = true,
           .amsgrad = true,
           .bias_correction = false},
       }) {
    SCOPED_TRACE(absl::StrCat("weight decay ", adam.weight_decay, " decoupled ",
                              adam.decoupled_weight_decay, " amsgrad ", adam.amsgrad,
                              " bias correction ", adam.bias_correction));
    ExpectAsInDouble({.optimizer = adam});
    ExpectAsInDouble({.optimizer = adam, .loss_scale = 100.0f});
  }
}

TEST(TrainingTest, GradientsMayBeSummed) {
  ExpectAsInDouble(
      {.optimizer = compiler::SgdOptions{.learning_rate = 0.01f, .weight_decay = 0.25f},
       .reduction = compiler::GradientReduction::kSum});
}

TEST(TrainingTest, HyperParametersChangeBetweenRuns) {
  ExpectAsInDouble(std::vector<ProgramSpec>{
      {.optimizer = compiler::SgdOptions{.learning_rate = 0.1f, .momentum = 0.9f}},
      {.optimizer =
           compiler::SgdOptions{.learning_rate = 0.05f, .momentum = 0.5f, .dampening = 0.25f}},
      {.optimizer =
           compiler::SgdOptions{.learning_rate = 0.02f, .momentum = 0.75f, .weight_decay = 0.1f}}});
  // The first update with new ones has a velocity of the old ones.
  ExpectAsInDouble(std::vector<ProgramSpec>{
      {.optimizer =
           compiler::SgdOptions{.learning_rate = 0.1f, .momentum = 0.9f, .combined = true}},
      {.optimizer = compiler::SgdOptions{.learning_rate = 0.05f,
                                         .momentum = 0.5f,
                                         .dampening = 0.25f,
                                         .weight_decay = 0.25f,
                                         .combined = true}},
      {.optimizer = compiler::SgdOptions{
           .learning_rate = 0.02f, .momentum = 0.75f, .weight_decay = 0.1f, .combined = true}}});
  ExpectAsInDouble(std::vector<ProgramSpec>{
      {.optimizer = compiler::AdamOptions{.learning_rate = 0.1f}},
      {.optimizer =
           compiler::AdamOptions{.learning_rate = 0.2f, .beta1 = 0.5f, .weight_decay = 0.25f}},
      {.optimizer =
           compiler::AdamOptions{.learning_rate = 0.05f, .beta2 = 0.75f, .epsilon = 1e-2f}}});
}

// A power of two changes exponents only.
TEST(TrainingTest, AFixedLossScaleGivesTheSameBits) {
  for (ProgramSpec spec : {ProgramSpec{.optimizer = compiler::SgdOptions{.learning_rate = 0.1f,
                                                    .momentum = 0.9f,
                                                    .weight_decay = 0.1f}},
                           ProgramSpec{.optimizer = compiler::AdamOptions{.learning_rate = 0.1f,
                                                    .decoupled_weight_decay = true}}}) {
    const Trained without = Train(spec);
    for (float scale : {1.0f, 0.25f, 65536.0f}) {
      spec.loss_scale = scale;
      const Trained with = Train(spec);
      EXPECT_EQ(with.losses, without.losses);
      EXPECT_EQ(with.weights, without.weights);
    }
  }
}

// --- Random elements ---

// Two ops, the second one on the last IPU.
class RandomTrainingTest : public testing::TestWithParam<uint32_t> {
 protected:
  RandomTrainingTest() {
    Graph graph;
    const Tensor a = graph.Random(program::v1::Random::UNIFORM, {FLOAT32, {kElements}});
    graph.SetIpu(GetParam() - 1);
    const Tensor b = graph.Random(program::v1::Random::UNIFORM, {FLOAT32, {kElements}});
    const Tensor w = graph.Variable("w", {FLOAT32, {}}, {1});
    graph.Output("a", a);
    graph.Output("b", b);
    const Tensor loss = graph.Sum(graph.Multiply(graph.Multiply(a, b), w));
    session_ = Open(graph, {.optimizer = SgdOptions{}}, loss, GetParam());
  }

  // Each IPU has its own.
  void Write(const std::string& name, const std::vector<float>& values) {
    for (uint32_t ipu = 0; ipu < GetParam(); ++ipu) {
      const std::string own = ipu == 0 ? name : absl::StrCat(name, "/ipu", ipu);
      const absl::Status status = session_->WriteFloats(own, values);
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  // The numbers that a run draws, by replica, op and micro-batch.
  std::vector<std::vector<float>> Draw() {
    const auto cycles = session_->Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    std::vector<std::vector<float>> draws;
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      for (const char* name : {"a", "b"}) {
        const auto values = *session_->Stream<float>(name, replica);
        for (auto at = values.begin(); at != values.end(); at += kElements)
          draws.emplace_back(at, at + kElements);
      }
    }
    return draws;
  }

  static constexpr int64_t kElements = 5;
  std::unique_ptr<Session> session_;
};
INSTANTIATE_TEST_SUITE_P(IpusPerReplica, RandomTrainingTest, testing::Values(1, 2));

TEST_P(RandomTrainingTest, NoTwoDrawsAreEqual) {
  ASSERT_TRUE(session_);
  std::set<std::vector<float>> different;
  for (uint32_t run = 0; run < kRuns; ++run) {
    for (auto& draw : Draw()) different.insert(std::move(draw));
  }
  EXPECT_EQ(different.size(), kRuns * kReplicas * 2 * kMicroBatches);
}

TEST_P(RandomTrainingTest, FollowFromSeedAndCounter) {
  ASSERT_TRUE(session_);
  const auto first = Draw();
  EXPECT_EQ(*session_->ReadFloats("random/counter", 1), std::vector<float>{kMicroBatches});
  EXPECT_NE(Draw(), first);
  Write("random/counter", {0});
  EXPECT_EQ(Draw(), first);
  Write("random/counter", {0});
  Write("random/seed", {1, 2});
  EXPECT_EQ(*session_->ReadFloats("random/seed"), (std::vector<float>{1, 2}));
  EXPECT_NE(Draw(), first);
}

}  // namespace
}  // namespace vpod::session
