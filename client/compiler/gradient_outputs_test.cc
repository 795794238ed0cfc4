// Gradients that a run gives to the host, one for each micro-batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::TANH;
using testing::ElementsAreArray;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

using Vector = std::vector<float>;

struct Network {
  Graph graph;
  Tensor w0, w1, hidden, y, loss;
};

// y = tanh(x w0) w1 + tanh(x w0), loss = sum(y^2), half of it on each IPU. Only the first layer has
// w0, and both have the hidden values.
Network MakeNetwork(uint32_t ipus) {
  Network network;
  Graph& g = network.graph;
  const Tensor x = g.Input("x", {FLOAT32, {2, 3}});
  network.w0 = g.Variable("w0", {FLOAT32, {3, 3}}, RandomValues(9, 1));
  network.hidden = g.Unary(TANH, g.MatMul(x, network.w0));
  g.SetIpu(ipus - 1);
  g.SetStage(ipus - 1);
  network.w1 = g.Variable("w1", {FLOAT32, {3, 3}}, RandomValues(9, 2));
  network.y = g.Add(g.MatMul(network.hidden, network.w1), network.hidden);
  network.loss = g.Sum(g.Multiply(network.y, network.y));
  g.Output("y", network.y);
  return network;
}

struct Case {
  uint32_t ipus = 1;
  Schedule schedule = Schedule::kSharded;
  Recomputation recomputation = Recomputation::kNone;
};

constexpr uint32_t kAccumulation = 4, kIterations = 2;
constexpr float kRate = 0.125f;

// The outputs of a run, and the second weights before and after it.
struct Result {
  std::map<std::string, Vector> outputs;
  Vector before, after;
};

Result Train(const Case& test, std::optional<float> loss_scale = {},
             const std::map<std::string, OutputMode>& own = {}) {
  const Network network = MakeNetwork(test.ipus);
  const ProgramSpec spec{.name = "train",
                         .device_iterations = kIterations,
                         .accumulation = kAccumulation,
                         .loss = network.loss,
                         .optimizer = SgdOptions{.learning_rate = kRate},
                         .loss_scale = loss_scale,
                         .reduction = GradientReduction::kSum,
                         .output_modes = own,
                         .gradient_outputs = {{"by w0", network.w0},
                                              {"by w1", network.w1},
                                              {"by hidden", network.hidden},
                                              {"by y", network.y}}};
  const auto compiled = Compile(network.graph, {.ipus_per_replica = test.ipus,
                                                .schedule = test.schedule,
                                                .recomputation = test.recomputation,
                                                .programs = {spec}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  auto session = session::Session::Create(
      *session::CreateIpuModel({.ipus_per_replica = test.ipus, .compute_threads = 2}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  Result run;
  run.before = *(*session)->ReadFloats("w1");
  const auto input = *(*session)->Stream<float>("x", 0);
  const Vector values = RandomValues(input.size(), 7);
  std::copy(values.begin(), values.end(), input.begin());
  const auto cycles = (*session)->Run("train");
  EXPECT_TRUE(cycles.ok()) << cycles.status();
  for (const char* name : {"y", "by w0", "by w1", "by hidden", "by y"}) {
    const auto output = *(*session)->Stream<float>(name, 0);
    run.outputs[name] = Vector(output.begin(), output.end());
  }
  run.after = *(*session)->ReadFloats("w1");
  return run;
}

// The sum of the parts of so many elements.
Vector SumOfParts(const Vector& all, size_t size) {
  Vector sum(size);
  for (size_t i = 0; i < all.size(); ++i) sum[i % size] += all[i];
  return sum;
}

TEST(GradientOutputs, AreThoseOfTheUpdate) {
  const Result run = Train({});
  EXPECT_EQ(run.outputs.at("by w1").size(), 9u * kAccumulation * kIterations);
  const Vector sum = SumOfParts(run.outputs.at("by w1"), 9);
  Vector expected = run.before;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] -= kRate * sum[i];
  EXPECT_NE(run.before, run.after);
  EXPECT_THAT(run.after, Pointwise(FloatNear(1e-4f), expected));
}

TEST(GradientOutputs, AreOfValuesInTheForwardPass) {
  const Result run = Train({});
  Vector doubled = run.outputs.at("y");
  for (float& value : doubled) value *= 2;
  EXPECT_THAT(run.outputs.at("by y"), ElementsAreArray(doubled));
  // By the hidden values: through the product with w1, and directly.
  const Vector& by_y = run.outputs.at("by y");
  const Vector& by_hidden = run.outputs.at("by hidden");
  for (size_t row = 0; row < 2; ++row) {
    for (size_t k = 0; k < 3; ++k) {
      float expected = by_y[row * 3 + k];
      for (size_t j = 0; j < 3; ++j) expected += by_y[row * 3 + j] * run.before[k * 3 + j];
      EXPECT_NEAR(by_hidden[row * 3 + k], expected, 1e-5f);
    }
  }
}

TEST(GradientOutputs, AreTimesTheLossScale) {
  const Result plain = Train({}), scaled = Train({}, 8.0f);
  for (const auto& [name, values] : plain.outputs) {
    Vector expected = values;
    if (name != "y") std::for_each(expected.begin(), expected.end(), [](float& v) { v *= 8; });
    EXPECT_THAT(scaled.outputs.at(name), ElementsAreArray(expected)) << name;
  }
}

TEST(GradientOutputs, DoNotDependOnTheSchedule) {
  const Result one = Train({});
  for (const Case& test : {Case{2}, Case{2, Schedule::kPhased}, Case{2, Schedule::kGrouped},
                           Case{2, Schedule::kInterleaved}, Case{2, Schedule::kSequential},
                           Case{2, Schedule::kGrouped, Recomputation::kPipeline},
                           Case{1, Schedule::kSharded, Recomputation::kAll}}) {
    const Result other = Train(test);
    EXPECT_EQ(other.outputs, one.outputs) << static_cast<int>(test.schedule);
    EXPECT_EQ(other.after, one.after);
  }
}

TEST(GradientOutputs, HaveModesOfTheirOwn) {
  for (const Case& test : {Case{}, Case{2, Schedule::kGrouped}}) {
    const Result all = Train(test);
    const Result own =
        Train(test, {}, {{"by w0", OutputMode::kFinal}, {"by w1", OutputMode::kSum}});
    const Vector& by_w0 = all.outputs.at("by w0");
    EXPECT_THAT(own.outputs.at("by w0"), ElementsAreArray(by_w0.end() - 9, by_w0.end()));
    EXPECT_THAT(own.outputs.at("by w1"), ElementsAreArray(SumOfParts(all.outputs.at("by w1"), 9)));
    EXPECT_EQ(own.outputs.at("by y"), all.outputs.at("by y"));
  }
}

TEST(GradientOutputs, HaveTheTypeOfTheValue) {
  Graph g;
  const Tensor w = g.Variable("w", {FLOAT16, {2}}, {1, 2});
  const Tensor loss = g.Sum(g.Cast(g.Multiply(w, w), FLOAT32));
  const auto compiled = Compile(g, {.programs = {{.name = "train",
                                                  .loss = loss,
                                                  .optimizer = SgdOptions{},
                                                  .gradient_outputs = {{"by w", w}}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto stream = compiled->executable->FindStream("by w");
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(compiled->executable->proto().streams(static_cast<int>(*stream)).type(), FLOAT16);
}

TEST(GradientOutputs, ThatThereCannotBeAreNamed) {
  const auto refused = [](auto change, const std::string& message) {
    Network network = MakeNetwork(1);
    const Tensor aside = network.graph.Variable("aside", {FLOAT32, {2}}, {1, 2});
    const Tensor sign = network.graph.Cast(network.y, program::v1::INT32);
    ProgramSpec spec{.name = "run", .loss = network.loss, .optimizer = SgdOptions{}};
    change(spec, network, aside, sign);
    const auto compiled = Compile(network.graph, {.programs = {spec}});
    EXPECT_THAT(std::string(compiled.status().message()), HasSubstr(message));
  };
  refused(
      [](auto& spec, auto&, Tensor aside, Tensor) {
        spec.gradient_outputs = {{"g", aside}};
      },
      "program 'run': the loss does not depend, by way of gradients, on the value of which "
      "'g' is the gradient");
  refused(
      [](auto& spec, auto&, Tensor, Tensor sign) {
        spec.gradient_outputs = {{"g", sign}};
      },
      "gradient output 'g' is of a value of int32[2,3], must be of a float");
  refused(
      [](auto& spec, auto&, Tensor, Tensor) {
        spec.gradient_outputs = {{"g", {4000}}};
      },
      "gradient output 'g' is not of a value of the graph");
  refused(
      [](auto& spec, auto& network, Tensor, Tensor) {
        spec.gradient_outputs = {{"y", network.w0}};
      },
      "the output 'y' is used twice");
  refused(
      [](auto& spec, auto& network, Tensor, Tensor) {
        spec = {.name = "run", .gradient_outputs = {{"g", network.w0}}};
      },
      "program 'run' has gradient_outputs and no loss");
}

}  // namespace
}  // namespace vpod::compiler
