// Replicas that share out the state of the optimiser train as those that have all of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::InitialValue;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

constexpr uint32_t kReplicas = 4;

struct Job {
  uint32_t ipus = 1;
  program::v1::DataType type = FLOAT32;
  compiler::CompileOptions options = {};
  compiler::ProgramSpec train = {};
};

// A convolution, whose weights lie otherwise than the host sees them, and two products; the
// smallest variables stay whole.
compiler::CompileOptions Build(const Job& job, Graph& g) {
  const Tensor image = g.Cast(g.Input("image", {FLOAT32, {2, 16, 4, 4}}), job.type);
  const Tensor filter =
      g.Variable("filter", {job.type, {64, 16, 3, 3}}, InitialValue::Uniform(0.1, 1));
  program::v1::SlidingWindow window;
  for (int axis = 0; axis < 2; ++axis) {
    window.add_kernel(3);
    window.add_stride(1);
    window.add_dilation(1);
    window.add_pad_before(1);
    window.add_pad_after(1);
  }
  Tensor x = g.Reshape(g.Relu(g.Convolution(image, filter, window)), {2, 1024});
  g.SetIpu(job.ipus - 1);
  const Tensor w = g.Variable("w", {job.type, {1024, 12}}, InitialValue::Uniform(0.05, 2));
  const Tensor b = g.Variable("b", {job.type, {12}}, InitialValue::Filled(0));
  const Tensor loss = g.Mean(g.SoftmaxCrossEntropy(g.Cast(g.Add(g.MatMul(x, w), b), FLOAT32),
                                                   g.Input("label", {INT32, {2}})));
  g.Output("loss", loss);
  compiler::CompileOptions options = job.options;
  options.ipus_per_replica = job.ipus;
  options.total_replicas = kReplicas;
  compiler::ProgramSpec train = job.train;
  train.name = "train";
  train.loss = loss;
  options.programs = {train};
  return options;
}

std::unique_ptr<Session> Open(const Job& job) {
  Graph g;
  const compiler::CompileOptions options = Build(job, g);
  const auto compiled = compiler::Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  auto device = CreateIpuModel({.replicas = kReplicas, .ipus_per_replica = job.ipus});
  EXPECT_TRUE(device.ok()) << device.status();
  if (!compiled.ok() || !device.ok()) return nullptr;
  auto session = Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

std::vector<float> TrainOn(Session& session, uint32_t updates) {
  std::vector<float> losses;
  std::mt19937 generator(5);
  for (uint32_t update = 0; update < updates; ++update) {
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      const auto pixels = *session.Stream<float>("image", replica);
      for (float& pixel : pixels) pixel = static_cast<float>(generator() % 256) / 128 - 1;
      const auto labels = *session.Stream<int32_t>("label", replica);
      for (int32_t& label : labels) label = static_cast<int32_t>(generator() % 12);
    }
    const auto cycles = session.Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      const auto loss = *session.Stream<float>("loss", replica);
      losses.insert(losses.end(), loss.begin(), loss.end());
    }
  }
  return losses;
}

struct State {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> variables;
  friend bool operator==(const State&, const State&) = default;
};

std::map<std::string, std::vector<float>> Variables(Session& session) {
  std::map<std::string, std::vector<float>> variables;
  for (const char* name : {"filter", "w", "b"}) {
    for (const char* prefix : {"", "Accl___", "Accl1___", "Accl2___"}) {
      const std::string full = absl::StrCat(prefix, name);
      for (uint32_t replica = 0; replica < kReplicas; ++replica) {
        const auto values = session.ReadFloats(full, replica);
        if (!values.ok()) continue;
        const auto [first, is_new] = variables.try_emplace(full, *values);
        EXPECT_EQ(first->second, *values) << full << " of replica " << replica;
      }
    }
  }
  return variables;
}

State Train(const Job& job) {
  const auto session = Open(job);
  if (session == nullptr) return {};
  State state{TrainOn(*session, 3), {}};
  state.variables = Variables(*session);
  return state;
}

// Bytes of optimiser state on IPU 0 of a replica, on chip or off.
uint64_t StateBytes(const Job& job) {
  Graph g;
  const auto compiled = compiler::Compile(g, Build(job, g));
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  uint64_t bytes = 0;
  for (const auto& tensor : compiled->executable->host_tensors()) {
    if (tensor.ipu == 0 && compiler::IsOptimizerState(tensor.name)) bytes += tensor.type.bytes();
  }
  return bytes;
}

void ExpectTheSame(Job job, const std::string& what) {
  const State whole = Train(job);
  ASSERT_FALSE(whole.losses.empty());
  EXPECT_NE(whole.losses.front(), whole.losses.back());
  const uint64_t bytes = StateBytes(job);
  for (uint32_t shards : {2u, 4u}) {
    job.options.tensor_shards = shards;
    EXPECT_EQ(Train(job), whole) << what << ", " << shards << " shards";
    EXPECT_LT(StateBytes(job), bytes / shards + 300) << what;
  }
}

const compiler::SgdOptions kMomentum{.learning_rate = 0.05f, .momentum = 0.9f};

TEST(TensorShardingTest, OptimizersThatWorkByElements) {
  ExpectTheSame({.train = {.optimizer = kMomentum}}, "SGD");
  ExpectTheSame({.train = {.accumulation = 3, .optimizer = kMomentum}}, "SGD, accumulation");
  ExpectTheSame({.type = FLOAT16, .train = {.accumulation = 3, .optimizer = kMomentum}},
                "SGD, float16");
  ExpectTheSame({.train = {.optimizer = compiler::AdamOptions{.weight_decay = 0.01f}}}, "Adam");
  ExpectTheSame({.train = {.accumulation = 3,
                           .optimizer = compiler::AdamOptions{.float16_first_moment = true,
                                                              .float16_second_moment = true},
                           .float16_accumulators = true}},
                "Adam with float16 state");
  ExpectTheSame({.train = {.accumulation = 2,
                           .optimizer = compiler::SgdOptions{.learning_rate = 0.05f,
                                                             .momentum = 0.9f,
                                                             .weight_decay = 0.01f,
                                                             .combined = true}}},
                "SGD, combined");
  Job rms{.train = {.optimizer = compiler::RmsPropOptions{.tensorflow = true}}};
  for (const bool off_chip : {false, true}) {
    rms.options.tensor_shards = 1;
    rms.options.off_chip_optimizer_state = off_chip;
    ExpectTheSame(rms, "RMSprop, whose squares begin with 1");
  }
  ExpectTheSame(
      {.train = {.optimizer = compiler::RmsPropOptions{.momentum = 0.5f, .centered = true}}},
      "RMSprop");
}

TEST(TensorShardingTest, ReductionsOfGradients) {
  for (const auto reduction :
       {compiler::GradientReduction::kSum, compiler::GradientReduction::kRunningMean}) {
    ExpectTheSame({.train = {.accumulation = 2, .optimizer = kMomentum, .reduction = reduction}},
                  absl::StrCat("reduction ", static_cast<int>(reduction)));
  }
}

TEST(TensorShardingTest, WhatIsComputedOfAllGradients) {
  ExpectTheSame({.train = {.optimizer = kMomentum, .clip_norm = 0.1f}}, "clipped by norm");
  ExpectTheSame({.train = {.optimizer = kMomentum, .clip_value = 0.001f}}, "clipped by value");
  // The first updates overflow.
  ExpectTheSame({.type = FLOAT16,
                 .train = {.optimizer = kMomentum,
                           .loss_scale = 0x1p22f,
                           .automatic_loss_scale = compiler::AutomaticLossScale()}},
                "automatic loss scale");
}

TEST(TensorShardingTest, PipelinesAndStateOffTheChip) {
  Job job{.ipus = 2, .train = {.accumulation = 3, .optimizer = kMomentum}};
  job.options.schedule = compiler::Schedule::kGrouped;
  ExpectTheSame(job, "pipelined");
  job.options.off_chip_optimizer_state = true;
  ExpectTheSame(job, "pipelined, off the chip");
}

// The norms are sums of float32 squares of parts.
TEST(TensorShardingTest, LambStepsByTheNormsOfTheWhole) {
  Job job{.train = {
              .accumulation = 2,
              .optimizer = compiler::LambOptions{.learning_rate = 0.01f, .max_weight_norm = 1.5f}}};
  for (bool off_chip : {false, true}) {
    job.options.off_chip_optimizer_state = off_chip;
    job.options.tensor_shards = 1;
    const State whole = Train(job);
    for (uint32_t shards : {2u, 4u}) {
      job.options.tensor_shards = shards;
      const State state = Train(job);
      EXPECT_THAT(state.losses, testing::Pointwise(testing::FloatNear(1e-5f), whole.losses));
      for (const auto& [name, values] : whole.variables)
        EXPECT_THAT(state.variables.at(name),
                    testing::Pointwise(testing::FloatNear(1e-5f), values));
    }
  }
}

TEST(TensorShardingTest, OptimizersThatStayWhole) {
  Job job{.train = {.optimizer = compiler::LarsOptions()}};
  const uint64_t bytes = StateBytes(job);
  const State whole = Train(job);
  job.options.tensor_shards = 4;
  EXPECT_EQ(StateBytes(job), bytes);
  EXPECT_EQ(Train(job), whole);
}

// A checkpoint does not say how state was shared out.
TEST(TensorShardingTest, CheckpointsGoFromOneToTheOther) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", "checkpoint.npz");
  for (uint32_t from : {1u, 2u, 4u}) {
    for (uint32_t to : {1u, 4u}) {
      Job job{.train = {.optimizer = compiler::AdamOptions()}};
      job.options.tensor_shards = from;
      const auto first = Open(job);
      ASSERT_NE(first, nullptr);
      TrainOn(*first, 2);
      ASSERT_TRUE(first->Save(path).ok());
      job.options.tensor_shards = to;
      job.options.off_chip_optimizer_state = from == 2;
      const auto second = Open(job);
      ASSERT_NE(second, nullptr);
      const absl::Status loaded = second->Load(path);
      ASSERT_TRUE(loaded.ok()) << loaded;
      EXPECT_EQ(Variables(*second), Variables(*first)) << from << " to " << to;
      EXPECT_EQ(TrainOn(*second, 2), TrainOn(*first, 2)) << from << " to " << to;
    }
  }
}

TEST(TensorShardingTest, ShardsDivideTheReplicas) {
  for (uint32_t shards : {0u, 3u, 8u}) {
    Graph g;
    Job job;
    job.options.tensor_shards = shards;
    EXPECT_EQ(compiler::Compile(g, Build(job, g)).status().message(),
              absl::StrCat("tensor_shards is ", shards, ", must divide the 4 replicas of the job"));
  }
}

TEST(TensorShardingTest, BytesAreThoseOfTheWhole) {
  Job job{.train = {.optimizer = kMomentum}};
  job.options.tensor_shards = 4;
  const auto session = Open(job);
  ASSERT_NE(session, nullptr);
  std::string bytes(4 * 64 * 16 * 9, '\0');
  std::mt19937 generator(1);
  for (char& byte : bytes) byte = static_cast<char>(generator() % 64);
  const absl::Status written = session->WriteBytes("Accl___filter", bytes);
  ASSERT_TRUE(written.ok()) << written;
  for (uint32_t replica : {0u, 3u}) EXPECT_EQ(*session->ReadBytes("Accl___filter", replica), bytes);
  EXPECT_EQ(session->WriteBytes("Accl___filter", bytes.substr(4)).message(),
            "variable 'Accl___filter' has 36864 bytes; 36860 given");
  EXPECT_FALSE(session->ReadBytes("Accl___filter", 4).ok());
  EXPECT_FALSE(session->ReadBytes("nothing").ok());
}

// Four replicas on a device that has two of them.
TEST(TensorShardingTest, AnInstanceHasAllParts) {
  Graph g;
  Job job{.train = {.optimizer = kMomentum}};
  job.options.tensor_shards = 4;
  auto compiled = compiler::Compile(g, Build(job, g));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  program::v1::Executable text = compiled->executable->source();
  text.set_total_replicas(2);  // or the whole job would be too small, as an IPUModel is one
  compiled->executable = *program::Executable::Make(std::move(text));
  const auto session = Session::Create(*CreateIpuModel({.replicas = 2}), *compiled);
  EXPECT_EQ(session.status().message(),
            "variable 'Accl___filter' is shared out among 4 replicas, and this instance has 2: "
            "tensor_shards must divide the replicas of each instance");
}

TEST(TensorShardingTest, WeightsAndAccumulatorsMayLieOffTheChip) {
  for (std::optional<float> clip_norm : {std::optional<float>(), std::optional<float>(0.25f)}) {
    Job job{.train = {.accumulation = 2, .optimizer = kMomentum, .clip_norm = clip_norm}};
    const State whole = Train(job);
    for (uint32_t shards : {1, 2, 4}) {
      SCOPED_TRACE(absl::StrCat(shards, " parts, ", clip_norm ? "clipped" : "not clipped"));
      job.options.tensor_shards = shards;
      job.options.off_chip_weights = job.options.off_chip_optimizer_state = true;
      job.options.off_chip_accumulators = true;
      EXPECT_EQ(Train(job), whole);
    }
  }
}

TEST(TensorShardingTest, HyperParametersChangeBetweenRuns) {
  Job job{.train = {.optimizer = compiler::LambOptions()}};
  job.options.tensor_shards = 4;
  const auto session = Open(job);
  ASSERT_NE(session, nullptr);
  const absl::Status changed =
      session->SetHyperParameters(compiler::LambOptions{.learning_rate = 0});
  ASSERT_TRUE(changed.ok()) << changed;
  const auto before = Variables(*session);
  TrainOn(*session, 1);
  EXPECT_EQ(Variables(*session).at("w"), before.at("w"));
}

}  // namespace
}  // namespace vpod::session
