#include "client/session/session.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/npz.h"
#include "tests/support/random_values.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

std::unique_ptr<Session> Open(const Graph& graph, const compiler::CompileOptions& options) {
  auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto device = CreateIpuModel({.replicas = options.total_replicas,
                                .ipus_per_replica = options.ipus_per_replica,
                                .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  auto session = Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

// A two-layer classifier on micro-batches of 4 rows of 12; the second layer on IPU `second_ipu`.
Graph Classifier(uint32_t second_ipu, Tensor* loss_out, program::v1::DataType type = FLOAT32) {
  Graph graph;
  Tensor x = graph.Cast(graph.Input("x", {FLOAT32, {4, 12}}), type);
  const Tensor labels = graph.Input("labels", {INT32, {4}});
  const Tensor w1 = graph.Variable("w1", {type, {12, 10}}, RandomValues(120, 1, 0.5));
  const Tensor b1 = graph.Variable("b1", {type, {10}}, RandomValues(10, 2, 0.1));
  x = graph.Relu(graph.Add(graph.MatMul(x, w1), b1));
  graph.SetIpu(second_ipu);
  const Tensor w2 = graph.Variable("w2", {type, {10, 3}}, RandomValues(30, 3, 0.5));
  const Tensor logits = graph.MatMul(x, w2);
  const Graph::Scope scope(graph, "loss");
  *loss_out = graph.Mean(graph.SoftmaxCrossEntropy(logits, labels));
  graph.Output("loss", graph.Cast(*loss_out, FLOAT32));
  return graph;
}

// Trains three steps on 16 micro-batches; returns all losses and the final weights.
std::vector<float> Train(uint32_t replicas, uint32_t accumulation, uint32_t ipus_per_replica = 1) {
  Tensor loss;
  const Graph graph = Classifier(ipus_per_replica - 1, &loss);
  compiler::CompileOptions options;
  options.total_replicas = replicas;
  options.ipus_per_replica = ipus_per_replica;
  options.programs = {{.name = "train",
                       .accumulation = accumulation,
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = 0.1f, .momentum = 0.9f}}};
  auto session = Open(graph, options);
  if (!session) return {};
  std::vector<float> result;
  for (int step = 0; step < 3; ++step) {
    for (uint32_t r = 0; r < replicas; ++r) {
      auto x = *session->Stream<float>("x", r);
      auto labels = *session->Stream<int32_t>("labels", r);
      for (uint32_t a = 0; a < accumulation; ++a) {
        const uint32_t batch = step * 16 + r * accumulation + a;
        const std::vector<float> data = RandomValues(48, 100 + batch);
        std::copy(data.begin(), data.end(), x.begin() + a * 48);
        for (int i = 0; i < 4; ++i) labels[a * 4 + i] = static_cast<int32_t>((batch + i) % 3);
      }
    }
    const auto cycles = session->Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    EXPECT_GT(cycles->value(), 1000u);
    for (uint32_t r = 0; r < replicas; ++r) {
      const auto losses = *session->Stream<float>("loss", r);
      result.insert(result.end(), losses.begin(), losses.end());
    }
  }
  for (const char* name : {"w1", "b1", "w2"}) {
    const auto weights = *session->ReadFloats(name, replicas - 1);
    result.insert(result.end(), weights.begin(), weights.end());
  }
  return result;
}

void ExpectClose(const std::vector<float>& a, const std::vector<float>& b, float relative) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], relative * std::max(1e-3f, std::fabs(a[i]))) << i;
  }
}

TEST(SessionTest, ReplicationAndAccumulationGiveTheSameCurve) {
  const std::vector<float> one_by_sixteen = Train(1, 16);
  ExpectClose(one_by_sixteen, Train(4, 4), 1e-5f);
  ExpectClose(one_by_sixteen, Train(16, 1), 1e-5f);
}

TEST(SessionTest, RunsAreIdenticalToTheBit) {
  EXPECT_EQ(Train(16, 1), Train(16, 1));
  EXPECT_EQ(Train(4, 4), Train(4, 4));
}

TEST(SessionTest, AReplicaMaySpanTwoIpus) {
  // Sharding moves tensors between IPUs and changes no arithmetic.
  EXPECT_EQ(Train(4, 4, 2), Train(4, 4, 1));
}

TEST(SessionTest, LossFalls) {
  const std::vector<float> result = Train(16, 1);
  double first = 0, last = 0;
  for (int i = 0; i < 16; ++i) {
    first += result[i];
    last += result[32 + i];
  }
  EXPECT_LT(last, first);
}

TEST(SessionTest, HalfPrecisionTrainsToo) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss, FLOAT16);
  compiler::CompileOptions options;
  options.total_replicas = 2;
  options.programs = {{.name = "train",
                       .accumulation = 2,
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = 0.1f}}};
  auto session = Open(graph, options);
  ASSERT_TRUE(session);
  const auto before = *session->ReadFloats("w2");
  ASSERT_TRUE(session->Run("train").ok());
  EXPECT_NE(before, *session->ReadFloats("w2"));
  EXPECT_EQ(*session->ReadFloats("w2", 0), *session->ReadFloats("w2", 1));
}

TEST(SessionTest, ProgramsShareVariables) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  compiler::CompileOptions options;
  options.programs = {
      {.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{.learning_rate = 0.5f}},
      {.name = "evaluate", .device_iterations = 2}};
  auto session = Open(graph, options);
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->Run("evaluate").ok());
  const float before = (*session->Stream<float>("loss", 0))[1];
  ASSERT_TRUE(session->Run("train").ok());
  ASSERT_TRUE(session->Run("evaluate").ok());
  EXPECT_LT((*session->Stream<float>("loss", 0))[1], before);
}

TEST(SessionTest, LearningRateChangesBetweenRuns) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  compiler::CompileOptions options;
  options.programs = {
      {.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{.learning_rate = 0.5f}}};
  auto session = Open(graph, options);
  ASSERT_TRUE(session->SetLearningRate(0).ok());
  const auto before = *session->ReadFloats("w1");
  ASSERT_TRUE(session->Run("train").ok());
  EXPECT_EQ(*session->ReadFloats("w1"), before);
}

TEST(SessionTest, HyperParametersChangeBetweenRuns) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  const auto open = [&](const compiler::ProgramSpec& spec) {
    return Open(graph, {.programs = {spec}});
  };
  // As if it had been compiled with them.
  const auto expect_same = [&](compiler::ProgramSpec before, compiler::ProgramSpec after,
                               const auto& options) {
    before.name = after.name = "train";
    before.loss = after.loss = loss;
    auto changed = open(before), fresh = open(after);
    ASSERT_TRUE(changed->SetHyperParameters(options).ok());
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(changed->Run("train").ok());
      ASSERT_TRUE(fresh->Run("train").ok());
    }
    EXPECT_EQ(*changed->ReadFloats("w1"), *fresh->ReadFloats("w1"));
  };
  const compiler::SgdOptions sgd{
      .learning_rate = 0.5f, .momentum = 0.75f, .dampening = 0.1f, .weight_decay = 0.25f};
  expect_same({.optimizer = compiler::SgdOptions{.momentum = 0.9f}}, {.optimizer = sgd}, sgd);
  const compiler::AdamOptions adam{
      .learning_rate = 0.5f, .beta1 = 0.5f, .beta2 = 0.5f, .epsilon = 0.1f, .weight_decay = 0.25f};
  expect_same({.optimizer = compiler::AdamOptions{}}, {.optimizer = adam}, adam);

  auto plain = open({.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}});
  EXPECT_EQ(plain->SetHyperParameters(adam).message(),
            "the program was compiled for SGD, not for Adam");
  EXPECT_EQ(plain->SetHyperParameters(sgd).message(),
            "the program was compiled for SGD without the state that momentum or amsgrad needs");
  EXPECT_TRUE(plain->SetHyperParameters(compiler::SgdOptions{.weight_decay = 1}).ok());
  auto with_adam = open({.name = "train", .loss = loss, .optimizer = compiler::AdamOptions{}});
  EXPECT_EQ(with_adam->SetHyperParameters(sgd).message(),
            "the program was compiled for Adam, not for SGD");
  EXPECT_EQ(with_adam->SetHyperParameters(compiler::AdamOptions{.amsgrad = true}).message(),
            "the program was compiled for Adam without the state that momentum or amsgrad needs");
  EXPECT_EQ(with_adam->SetHyperParameters(compiler::AdamOptions{.maximize = true}).message(),
            "the flags of Adam must be as the program was compiled with them");
  EXPECT_EQ(plain->SetHyperParameters(compiler::SgdOptions{.maximize = true}).message(),
            "the flags of SGD must be as the program was compiled with them");
  EXPECT_EQ(
      with_adam->SetHyperParameters(compiler::AdamOptions{.float16_first_moment = true}).message(),
      "the flags of Adam must be as the program was compiled with them");
  EXPECT_EQ(
      with_adam->SetHyperParameters(compiler::AdamOptions{.bias_correction = false}).message(),
      "the flags of Adam must be as the program was compiled with them");
  auto uncorrected = open({.name = "train",
                           .loss = loss,
                           .optimizer = compiler::AdamOptions{.bias_correction = false}});
  EXPECT_TRUE(
      uncorrected->SetHyperParameters(compiler::AdamOptions{.bias_correction = false}).ok());
  EXPECT_EQ(uncorrected->SetHyperParameters(compiler::AdamOptions{}).message(),
            "the flags of Adam must be as the program was compiled with them");
  auto inference = open({.name = "infer"});
  EXPECT_EQ(inference->SetHyperParameters(compiler::SgdOptions{}).message(),
            "no program of the executable trains variables without a group");
}

// PyTorch dampens velocities only.
TEST(SessionTest, WithoutMomentumThereIsNoDampening) {
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {}}, {0});
  const auto session = Open(
      graph,
      {.programs = {
           {.name = "train", .loss = w, .optimizer = compiler::SgdOptions{.momentum = 0.5f}}}});
  ASSERT_TRUE(session->Run("train").ok());
  ASSERT_TRUE(
      session->SetHyperParameters(compiler::SgdOptions{.learning_rate = 1, .dampening = 0.5f})
          .ok());
  ASSERT_TRUE(session->WriteFloats("w", {0}).ok());
  ASSERT_TRUE(session->Run("train").ok());
  EXPECT_EQ(session->ReadFloats("w")->front(), -1);
}

// With random numbers, the loss scale's count and the optimiser's state.
TEST(SessionTest, TrainingGoesOnFromWhatWasSaved) {
  const std::string path = testing::TempDir() + "session.npz";
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT16, {64}}, std::vector<float>(64, 1));
  const Tensor loss =
      graph.Mean(graph.Cast(graph.Dropout(graph.Unary(program::v1::SQUARE, w), 0.5f), FLOAT32));
  graph.Output("loss", loss);
  const auto open = [&] {
    return Open(
        graph,
        {.programs = {{.name = "train",
                       .loss = loss,
                       .optimizer = compiler::AdamOptions{},
                       .loss_scale = 4,
                       .automatic_loss_scale = compiler::AutomaticLossScale{.interval = 3}}}});
  };
  const auto run = [](Session& session) {
    EXPECT_TRUE(session.Run("train").ok());
    return (*session.Stream<float>("loss", 0))[0];
  };
  auto first = open();
  for (int i = 0; i < 2; ++i) run(*first);
  ASSERT_TRUE(first->Save(path).ok());
  auto second = open();
  ASSERT_TRUE(second->Load(path).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(*first), run(*second));
  EXPECT_EQ(*first->ReadFloats(compiler::kLossScaleName),
            *second->ReadFloats(compiler::kLossScaleName));
}

TEST(SessionTest, LoadsWhatFitsTheProgram) {
  const std::string path = testing::TempDir() + "load.npz";
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT16, {2}}, {0, 0});
  graph.Output("y", w);
  const auto session = Open(graph, {.programs = {{.name = "infer"}}});
  const auto load = [&](const Arrays& arrays) {
    EXPECT_TRUE(WriteNpz(path, arrays).ok());
    return std::string(session->Load(path).message());
  };
  // A file that a program saved after training, in float32.
  EXPECT_EQ(load({{"w", FloatArray({2}, {1, 2049})},
                  {"Accl___w", FloatArray({2}, {1, 2})},
                  {"random/counter", {{program::v1::UINT32, {}}, "1234"}}}),
            "");
  EXPECT_EQ(*session->ReadFloats("w"), (std::vector<float>{1, 2048}));
  EXPECT_EQ(load({{"w", FloatArray({3}, {1, 2, 3})}}),
            path + ": array 'w' is float32[3], the variable is float16[2]");
  EXPECT_EQ(load({{"w", {{INT32, {2}}, "12345678"}}}),
            path + ": array 'w' is int32[2], the variable is float16[2]");
  const std::string error = load({{"v", FloatArray({2}, {1, 2})}});
  EXPECT_EQ(error.find(path + ": array 'v': "), 0u) << error;
}

TEST(SessionTest, RefusesAFileThatLacksVariables) {
  const std::string path = testing::TempDir() + "lacks.npz";
  Graph graph;
  Tensor sum = graph.Variable("v0", {FLOAT32, {}}, {0});
  for (const char* name : {"v1", "v2", "v3", "v4"})
    sum = graph.Add(sum, graph.Variable(name, {FLOAT32, {}}, {0}));
  const Tensor loss = graph.Mean(graph.Dropout(sum, 0.5f));
  const auto session = Open(
      graph, {.programs = {{.name = "train", .loss = loss, .optimizer = compiler::AdamOptions{}}}});
  const auto load = [&](const std::vector<std::string>& names, const LoadFileOptions& options) {
    Arrays arrays;
    for (const std::string& name : names) arrays[name] = FloatArray({}, {1});
    EXPECT_TRUE(WriteNpz(path, arrays).ok());
    return std::string(session->Load(path, options).message());
  };
  const std::string why = "; allow_missing keeps what the program has";
  EXPECT_EQ(load({"v0"}, {}),
            path + ": the file lacks variables 'v1', 'v2', 'v3' and 1 more" + why);
  EXPECT_EQ(load({"v0", "v1", "v2", "v4"}, {}), path + ": the file lacks variable 'v3'" + why);
  EXPECT_EQ(session->ReadFloats("v0")->front(), 0);
  EXPECT_EQ(load({"v0"}, {.allow_missing = true}), "");
  EXPECT_EQ(session->ReadFloats("v0")->front(), 1);
  EXPECT_EQ(session->ReadFloats("v1")->front(), 0);
  // The state of the optimiser and of random numbers is not in files from elsewhere.
  EXPECT_EQ(load({"v0", "v1", "v2", "v3", "v4"}, {}), "");
}

TEST(SessionTest, LabelOutOfRangeFailsTheRunByName) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  compiler::CompileOptions options;
  options.total_replicas = 4;
  options.programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}};
  auto session = Open(graph, options);
  (*session->Stream<int32_t>("labels", 2))[1] = 3;
  const absl::Status status = session->Run("train").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "softmax_cross_entropy 'loss': label 3 in row 1 is outside 0 to 2 (replica 2)");
}

// On any of several IPUs, whose units wait for each other, with and without other replicas.
class ProgramErrorTest : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {};

INSTANTIATE_TEST_SUITE_P(ReplicasAndIpus, ProgramErrorTest,
                         testing::Values(std::pair(1, 1), std::pair(1, 2), std::pair(4, 1),
                                         std::pair(4, 2)));

TEST_P(ProgramErrorTest, TheNextRunIsAsIfTheFailedOneHadNotBeen) {
  const auto [replicas, ipus] = GetParam();
  Tensor loss;
  const Graph graph = Classifier(ipus - 1, &loss);
  compiler::CompileOptions options;
  options.total_replicas = replicas;
  options.ipus_per_replica = ipus;
  options.programs = {{.name = "train",
                       .accumulation = 2,
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = 0.5f}},
                      {.name = "evaluate"}};
  const auto expected = Open(graph, options), session = Open(graph, options);
  for (int round = 0; round < 3; ++round) {
    for (const char* program : {"train", "evaluate"}) {
      const auto labels = *session->Stream<int32_t>("labels", replicas - 1);
      labels[1] = -7;
      const absl::Status status = session->Run(program).status();
      EXPECT_EQ(status.message(),
                absl::StrCat("softmax_cross_entropy 'loss': label -7 in row 1 is outside 0 to 2",
                             replicas == 1 ? "" : " (replica 3)"));
      labels[1] = 0;
      const auto cycles = session->Run(program), others = expected->Run(program);
      ASSERT_TRUE(cycles.ok()) << cycles.status();
      ASSERT_TRUE(others.ok()) << others.status();
      EXPECT_EQ(*cycles, *others);
    }
  }
  EXPECT_EQ(*session->ReadFloats("w1"), *expected->ReadFloats("w1"));
  EXPECT_EQ(*session->device().Counters(), *expected->device().Counters());
}

// Variables are as they were at the failure: here after the first of two updates.
TEST(SessionTest, VariablesStayAsTheyAreAtAFailure) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  compiler::CompileOptions options;
  options.programs = {{.name = "train",
                       .device_iterations = 2,
                       .loss = loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = 0.5f}}};
  const auto session = Open(graph, options);
  const auto before = *session->ReadFloats("w1");
  const auto stream = *session->Stream<float>("x", 0);
  std::fill(stream.begin(), stream.end(), 0.5f);
  (*session->Stream<int32_t>("labels", 0))[4] = 3;
  EXPECT_FALSE(session->Run("train").ok());
  EXPECT_NE(*session->ReadFloats("w1"), before);
  ASSERT_TRUE(session->WriteFloats("w1", before).ok());
  EXPECT_EQ(*session->ReadFloats("w1"), before);
}

TEST(SessionTest, CountersAgreeAcrossReplicas) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  compiler::CompileOptions options;
  options.total_replicas = 8;
  options.programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}};
  auto session = Open(graph, options);
  const auto cycles = session->Run("train");
  ASSERT_TRUE(cycles.ok());
  const auto counters = *session->device().Counters();
  ASSERT_EQ(counters.size(), 8u);
  for (const auto& counter : counters) EXPECT_EQ(counter, *cycles);
}

// Every tile gets all indices. As the original does, an IPUModel goes on.
TEST(SessionTest, WhatDoesNotFitAnIpuRunsOnAnIpuModel) {
  Graph graph;
  const Tensor indices = graph.Input("indices", {program::v1::INT32, {200000}});
  const Tensor table = graph.Buffer("table", {FLOAT32, {4}}, {1, 2, 3, 4});
  graph.Output("y", graph.Mean(graph.Gather(table, indices, 0)));
  compiler::CompileOptions options;
  options.programs = {{.name = "run"}};
  const absl::Status refused = compiler::Compile(graph, options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(refused.message()).find("fullest at gather of program 'run'"),
            std::string::npos)
      << refused;
  options.allow_out_of_memory = true;
  auto session = Open(graph, options);
  ASSERT_TRUE(session);
  const auto stream = *session->Stream<int32_t>("indices", 0);
  std::fill(stream.begin(), stream.end(), 2);
  ASSERT_TRUE(session->Run("run").ok());
  EXPECT_EQ((*session->Stream<float>("y", 0))[0], 3);
}

// In the place of those of the environment.
TEST(SessionTest, ProgramsMayGiveEngineOptions) {
  setenv("POPLAR_ENGINE_OPTIONS", R"({"debug.checkFinite": "true"})", 1);
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {}});
  graph.Output("y", graph.Binary(program::v1::DIVIDE, x, x));
  const auto compiled = compiler::Compile(graph, {.programs = {{.name = "run"}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto runs = [&](std::optional<EngineOptions> engine) {
    auto session = Session::Create(*CreateIpuModel({}), *compiled, {}, std::move(engine));
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() && (*session)->Run("run").ok();  // 0 / 0
  };
  EXPECT_FALSE(runs(std::nullopt));
  EXPECT_TRUE(runs(EngineOptions{}));
  setenv("POPLAR_ENGINE_OPTIONS", "no options", 1);
  EXPECT_FALSE(runs(EngineOptions{.check_finite = true}));
  EXPECT_TRUE(runs(EngineOptions{}));
  unsetenv("POPLAR_ENGINE_OPTIONS");
}

TEST(SessionTest, EngineOptionsMayAllowWhatDoesNotFit) {
  Graph graph;
  const Tensor indices = graph.Input("indices", {INT32, {200000}});
  const Tensor table = graph.Buffer("table", {FLOAT32, {4}}, {1, 2, 3, 4});
  graph.Output("y", graph.Mean(graph.Gather(table, indices, 0)));
  compiler::CompileOptions options{.programs = {{.name = "run"}}};
  options.engine = EngineOptions{.allow_out_of_memory = true};
  const auto allowed = compiler::Compile(graph, options);
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_FALSE(allowed->fits);
  setenv("POPLAR_ENGINE_OPTIONS", R"({"debug.allowOutOfMemory": "true"})", 1);
  options.engine = EngineOptions{};
  EXPECT_EQ(compiler::Compile(graph, options).status().code(),
            absl::StatusCode::kResourceExhausted);
  unsetenv("POPLAR_ENGINE_OPTIONS");
}

TEST(SessionTest, AnIpuModelSpeaksOfItsOwnMemory) {
  Graph graph;
  graph.Output("y", graph.Mean(graph.Buffer("b", {FLOAT32, {1 << 20}}, RandomValues(1 << 20, 1))));
  compiler::CompileOptions options;
  options.programs = {{.name = "run"}};
  const auto compiled = compiler::Compile(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto device = CreateIpuModel({.memory_limit_bytes = 1 << 20});
  const std::string refused(Session::Create(*std::move(device), *compiled).status().message());
  EXPECT_NE(refused.find(" MiB of the IPUModel's limit of 1 MiB are in use"), std::string::npos)
      << refused;
  EXPECT_EQ(refused.find("vpod"), std::string::npos) << refused;
}

TEST(SessionTest, IntegerVariablesAreReadAndWrittenAsFloats) {
  using namespace program::v1;
  for (const auto& [type, values] : {
           std::pair<DataType, std::vector<float>>{INT8, {-128, 127, 3}},
           {INT16, {-32768, 32767, 3}},
           {INT32, {-2147483648.0f, 65537, 3}},
           {UINT8, {0, 255, 3}},
           {UINT16, {0, 65535, 3}},
           {UINT32, {0, 2147483648.0f, 3}},
           {BOOL, {0, 1, 1}},
           {FLOAT16, {-0.5f, 65504, 3}},
       }) {
    SCOPED_TRACE(DataType_Name(type));
    Graph graph;
    graph.Output("y", graph.Cast(graph.Buffer("b", {type, {3}}, {1, 0, 1}), FLOAT32));
    compiler::CompileOptions options;
    options.programs = {{.name = "run"}};
    auto session = Open(graph, options);
    ASSERT_TRUE(session);
    EXPECT_EQ(*session->ReadFloats("b"), (std::vector<float>{1, 0, 1}));
    ASSERT_TRUE(session->WriteFloats("b", values).ok());
    EXPECT_EQ(*session->ReadFloats("b"), values);
    ASSERT_TRUE(session->Run("run").ok());
    const auto y = *session->Stream<float>("y", 0);
    EXPECT_EQ(std::vector<float>(y.begin(), y.end()), values);
  }
}

TEST(SessionTest, ValuesThatAVariableDoesNotTakeAreRefused) {
  Graph graph;
  graph.Output("y", graph.Buffer("b", {program::v1::INT8, {2}}, {1, 2}));
  compiler::CompileOptions options;
  options.programs = {{.name = "run"}};
  auto session = Open(graph, options);
  ASSERT_TRUE(session);
  for (const float wrong : {128.0f, 0.5f, NAN, INFINITY})
    EXPECT_EQ(session->WriteFloats("b", {3, wrong}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session->WriteFloats("b", {3, -129}).message(),
            "variable 'b': value -129 is not of type int8");
  EXPECT_EQ(*session->ReadFloats("b"), (std::vector<float>{1, 2}));
}

TEST(SessionTest, UnknownNamesListWhatThereIs) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  compiler::CompileOptions options;
  options.programs = {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}};
  auto session = Open(graph, options);
  EXPECT_EQ(session->Run("trian").status().message(), "no program 'trian'; there are train");
  EXPECT_EQ(session->Stream<float>("y", 0).status().message(),
            "no stream 'y'; there are x, labels, loss");
  EXPECT_FALSE(session->ReadFloats("w9").ok());
  EXPECT_FALSE(session->Stream<float>("x", 1).ok());
}

TEST(SessionTest, AStreamIsReadInItsType) {
  Graph graph;
  for (const auto type : {program::v1::INT32, program::v1::FLOAT32, program::v1::FLOAT16,
                          program::v1::BOOL, program::v1::INT8}) {
    const std::string name(program::Name(type));
    graph.Output("of " + name, graph.Input(name, {type, {3}}));
  }
  const auto session = Open(graph, {.programs = {{.name = "run"}}});
  EXPECT_EQ(session->Stream<float>("int32", 0).status().message(),
            "stream 'int32' has elements of int32, not float32");
  EXPECT_EQ(session->Stream<int32_t>("float32", 0).status().message(),
            "stream 'float32' has elements of float32, not int32");
  EXPECT_EQ(session->Stream<int16_t>("float16", 0).status().message(),
            "stream 'float16' has elements of float16, not int16");
  EXPECT_EQ(session->Stream<uint32_t>("of int8", 0).status().message(),
            "stream 'of int8' has elements of int8, not uint32");
  EXPECT_TRUE(session->Stream<int32_t>("int32", 0).ok());
  EXPECT_TRUE(session->Stream<_Float16>("float16", 0).ok());
  EXPECT_TRUE(session->Stream<bool>("bool", 0).ok());
  // The bits of any type.
  EXPECT_EQ(session->Stream<uint32_t>("float32", 0)->size(), 3u);
  EXPECT_EQ(session->Stream<uint16_t>("float16", 0)->size(), 3u);
  EXPECT_EQ(session->Stream<uint8_t>("bool", 0)->size(), 3u);
  EXPECT_EQ(session->StreamBytes("float16", 0)->size(), 6u);
}

// Creates a session of a graph that was compiled for so many replicas on `replicas` of them.
absl::Status OpenOn(uint32_t replicas, const Graph& graph,
                    const compiler::CompileOptions& options) {
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return compiled.status();
  return Session::Create(*CreateIpuModel({.replicas = replicas, .compute_threads = 2}), *compiled)
      .status();
}

TEST(SessionTest, AnExecutableIsForItsNumberOfReplicas) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  const compiler::ProgramSpec train{
      .name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}};
  EXPECT_EQ(OpenOn(2, graph, {.programs = {train}}).message(),
            "the executable is for 1 replica, and the job has 2: compile it with total_replicas=2");
  EXPECT_EQ(OpenOn(1, graph, {.total_replicas = 4, .programs = {train}}).message(),
            "the executable is for 4 replicas, and the job has 1: compile it with "
            "total_replicas=1");
  EXPECT_TRUE(OpenOn(4, graph, {.total_replicas = 4, .programs = {train}}).ok());
  // Nothing depends on the number.
  EXPECT_TRUE(OpenOn(4, graph, {.programs = {{.name = "infer"}}}).ok());
  // The numbers of micro-batches do.
  Graph random;
  random.Output("y", random.Random(program::v1::Random::UNIFORM, {FLOAT32, {4}}));
  EXPECT_FALSE(OpenOn(2, random, {.programs = {{.name = "infer"}}}).ok());
  EXPECT_TRUE(OpenOn(2, random, {.total_replicas = 2, .programs = {{.name = "infer"}}}).ok());
}

TEST(SessionTest, ARefusedExecutableLeavesTheDevice) {
  Tensor loss;
  const Graph graph = Classifier(0, &loss);
  const compiler::ProgramSpec train{
      .name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}};
  std::unique_ptr<Device> device = *CreateIpuModel({.replicas = 2, .compute_threads = 2});
  const auto four = compiler::Compile(graph, {.total_replicas = 4, .programs = {train}});
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_FALSE(Session::Create(std::move(device), *four).ok());
  ASSERT_NE(device, nullptr);
  const auto two = compiler::Compile(graph, {.total_replicas = 2, .programs = {train}});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_TRUE(Session::Create(std::move(device), *two).ok());
}

TEST(SessionTest, AForkedChildHasNoSession) {
  Graph graph;
  graph.Output("y", graph.Buffer("x", {FLOAT32, {1}}, {3}));
  auto session = Open(graph, {.programs = {{.name = "run"}}});
  ASSERT_TRUE(session);
  const std::string message =
      absl::StrCat("the session is of process ", getpid(),
                   " and cannot be used in a process forked from it: open one there");
  const pid_t child = fork();
  if (child == 0) {
    int refused = 0;
    for (const absl::Status& status :
         {session->Run("run").status(), session->ReadBytes("x").status(),
          session->WriteFloats("x", std::vector<float>{4}), session->StreamBytes("y", 0).status(),
          session->Save("/dev/null")})
      refused += status.message() == message;
    session.reset();  // and does not wait for threads that are not there
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 5) << status;
  ASSERT_TRUE(session->Run("run").ok());
  EXPECT_EQ((*session->Stream<float>("y", 0))[0], 3);
}

TEST(SessionTest, AForkedChildHasNoDevice) {
  Graph graph;
  graph.Output("y", graph.Buffer("x", {FLOAT32, {1}}, {3}));
  const auto compiled = compiler::Compile(graph, {.programs = {{.name = "run"}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::unique_ptr<Device> fresh = *CreateIpuModel({.compute_threads = 2}),
                          loaded = *CreateIpuModel({.compute_threads = 2});
  ASSERT_TRUE(loaded->Load(compiled->executable, {}).ok());
  const std::string message =
      absl::StrCat("the device is of process ", getpid(),
                   " and cannot be used in a process forked from it: open one there");
  const pid_t child = fork();
  if (child == 0) {
    int refused = 0;
    for (const absl::Status& status :
         {Session::Create(std::move(fresh), *compiled).status(),
          loaded->Load(compiled->executable, {}), loaded->Run(0, 0).status(),
          loaded->WriteVariable("x", std::string(4, 0)), loaded->ReadVariable("x", 0).status(),
          loaded->Counters().status()})
      refused += status.message() == message;
    loaded->Cancel();  // ends no run of the parent
    fresh.reset();     // and neither waits for threads that are not there
    loaded.reset();
    _exit(refused);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 6) << status;
  EXPECT_TRUE(loaded->Run(0, 0).ok());
  const auto session = Session::Create(std::move(fresh), *compiled);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Run("run").ok());
}

TEST(IpuModelTest, HasNoMoreIpusThanAPod) {
  const auto refusal = [](uint32_t replicas, uint32_t ipus) {
    return std::string(
        CreateIpuModel({.replicas = replicas, .ipus_per_replica = ipus}).status().message());
  };
  EXPECT_EQ(refusal(0, 1), "replicas is 0, must be 1 to 65536");
  EXPECT_EQ(refusal(100000, 1), "replicas is 100000, must be 1 to 65536");
  EXPECT_EQ(refusal(1025, 64), "replicas is 1025, must be 1 to 1024 of that many IPUs each");
  EXPECT_EQ(refusal(1, 3), "ipus_per_replica is 3, must be a power of two from 1 to 64");
  EXPECT_EQ(refusal(1, 128), "ipus_per_replica is 128, must be a power of two from 1 to 64");
}

TEST(IpuModelTest, IsRefusedUnderSeveralInstances) {
  setenv("POPDIST_NUM_TOTAL_REPLICAS", "16", 1);
  setenv("POPDIST_NUM_LOCAL_REPLICAS", "4", 1);
  const auto device = CreateIpuModel({});
  unsetenv("POPDIST_NUM_TOTAL_REPLICAS");
  unsetenv("POPDIST_NUM_LOCAL_REPLICAS");
  EXPECT_EQ(device.status().message(),
            "the IPUModel runs in one process and cannot take part in a job of 4 instances; attach "
            "to a partition, "
            "or start one instance");
}

}  // namespace
}  // namespace vpod::session
