// Tests of the results of compiled programs, on the IPUModel and by looking at every memory access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/program/op.h"
#include "tests/support/random_values.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using program::Dims;
using v1::FLOAT32;
using v1::Instruction;

std::unique_ptr<session::Session> Open(const Graph& graph, const CompileOptions& options) {
  const auto compiled = Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto device = session::CreateIpuModel({.replicas = options.total_replicas,
                                         .ipus_per_replica = options.ipus_per_replica,
                                         .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  auto session = session::Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

// With equal shapes, the gradients of a and b in a + b are one tensor; each variable must take it
// in whole, once.
TEST(CompiledRunTest, AGradientThatTwoVariablesShareUpdatesBoth) {
  for (uint32_t replicas : {1, 2}) {
    for (uint32_t accumulation : {1, 2}) {
      for (float momentum : {0.0f, 0.5f}) {
        SCOPED_TRACE(absl::StrCat(replicas, " × ", accumulation, ", momentum ", momentum));
        Graph graph;
        const Tensor x = graph.Input("x", {FLOAT32, {3}});
        const Tensor a = graph.Variable("a", {FLOAT32, {3}}, {1, 2, 3});
        const Tensor b = graph.Variable("b", {FLOAT32, {3}}, {10, 20, 30});
        const Tensor loss = graph.Sum(graph.Multiply(graph.Add(a, b), x));
        auto session = Open(
            graph,
            {.total_replicas = replicas,
             .programs = {{.name = "train",
                           .accumulation = accumulation,
                           .loss = loss,
                           .optimizer = SgdOptions{.learning_rate = 0.5f, .momentum = momentum},
                           .reduction = GradientReduction::kSum}}});
        ASSERT_TRUE(session);
        for (uint32_t replica = 0; replica < replicas; ++replica) {
          auto stream = *session->Stream<float>("x", replica);
          for (size_t i = 0; i < stream.size(); ++i) stream[i] = static_cast<float>(1 << i % 3);
        }
        ASSERT_TRUE(session->Run("train").ok());
        // The gradient of both is the sum of all x.
        const float n = static_cast<float>(replicas * accumulation);
        for (uint32_t replica = 0; replica < replicas; ++replica) {
          EXPECT_THAT(*session->ReadFloats("a", replica),
                      testing::ElementsAre(1 - n / 2, 2 - n, 3 - 2 * n));
          EXPECT_THAT(*session->ReadFloats("b", replica),
                      testing::ElementsAre(10 - n / 2, 20 - n, 30 - 2 * n));
        }
      }
    }
  }
}

// However micro-batches are dealt: in float32, 1 + 2^-24 + 2^-24 would be 1.
TEST(CompiledRunTest, GradientsByDifferentUsesAddUpInFloat64) {
  for (uint32_t replicas : {1, 2}) {
    Graph graph;
    const Tensor w = graph.Variable("w", {FLOAT32, {1}}, {0});
    Tensor loss;
    for (float factor : {0x1p-24f, 0x1p-24f, 1.0f}) {
      const Tensor use = graph.Multiply(w, graph.Constant({FLOAT32, {1}}, factor));
      loss = loss.valid() ? graph.Add(loss, use) : use;
    }
    auto session = Open(graph, {.total_replicas = replicas,
                                .programs = {{.name = "train",
                                              .accumulation = 2 / replicas,
                                              .loss = loss,
                                              .optimizer = SgdOptions{.learning_rate = 1}}}});
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->Run("train").ok());
    EXPECT_THAT(*session->ReadFloats("w"), testing::ElementsAre(-1 - 0x1p-23f)) << replicas;
  }
}

// The gradient of b is no sum but the constant gradient of the loss; a variable that the loss does
// not reach stays.
TEST(CompiledRunTest, ConstantGradients) {
  for (uint32_t accumulation : {1, 4}) {
    Graph graph;
    const Tensor b = graph.Variable("b", {FLOAT32, {1}}, {1});
    graph.Variable("idle", {FLOAT32, {2}}, {5, 6});
    auto session = Open(graph, {.programs = {{.name = "train",
                                              .device_iterations = 3,
                                              .accumulation = accumulation,
                                              .loss = b,
                                              .optimizer = SgdOptions{.learning_rate = 0.25f}}}});
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->Run("train").ok());
    EXPECT_THAT(*session->ReadFloats("b"), testing::ElementsAre(0.25f));
    EXPECT_THAT(*session->ReadFloats("idle"), testing::ElementsAre(5, 6));
  }
}

// The IPU with the loss, or the one with the inputs, may hold nothing to train.
TEST(CompiledRunTest, VariablesOnOneOfTwoIpus) {
  for (uint32_t home : {0, 1}) {
    SCOPED_TRACE(home);
    Graph graph;
    graph.SetIpu(1 - home);
    const Tensor x = graph.Unary(v1::SQUARE, graph.Input("x", {FLOAT32, {2}}));
    graph.SetIpu(home);
    const Tensor w = graph.Variable("w", {FLOAT32, {2}}, {1, 2});
    const Tensor y = graph.Multiply(x, w);
    graph.SetIpu(1 - home);
    const Tensor loss = graph.Sum(y);
    auto session = Open(graph, {.ipus_per_replica = 2,
                                .total_replicas = 2,
                                .programs = {{.name = "train",
                                              .accumulation = 2,
                                              .loss = loss,
                                              .optimizer = SgdOptions{.learning_rate = 0.5f}}}});
    ASSERT_TRUE(session);
    for (uint32_t replica : {0, 1}) {
      auto stream = *session->Stream<float>("x", replica);
      for (size_t i = 0; i < 4; ++i) stream[i] = static_cast<float>(replica * 2 + i / 2);
    }
    ASSERT_TRUE(session->Run("train").ok());
    // The mean of 0, 1, 4 and 9 is 3.5.
    EXPECT_THAT(*session->ReadFloats("w", 1), testing::ElementsAre(1 - 1.75f, 2 - 1.75f));
  }
}

// A batch of nothing goes through a network, also to another IPU, and teaches it nothing.
TEST(CompiledRunTest, TensorsWithoutElements) {
  for (uint32_t ipus : {1, 2}) {
    for (bool fusion : {true, false}) {
      SCOPED_TRACE(absl::StrCat(ipus, " IPUs", fusion ? ", fused" : ""));
      Graph g;
      const Tensor x = g.Input("x", {FLOAT32, {2, 3, 6, 6}});
      const Tensor none = g.Slice(x, {2, 0, 0, 0}, {0, 3, 6, 6});
      const Tensor weights =
          g.Variable("weights", {FLOAT32, {4, 3, 3, 3}}, RandomValues(4 * 27, 1));
      Tensor y = g.Relu(g.Convolution(none, weights, Graph::Sliding(2, 3)));
      y = g.MaxPool(y, Graph::Sliding(2, 2, 2));
      g.SetIpu(ipus - 1);
      const Tensor w = g.Variable("w", {FLOAT32, {16, 5}}, RandomValues(80, 2));
      const Tensor labels = g.Slice(g.Input("labels", {v1::INT32, {1}}), {0}, {0});
      const Tensor logits = g.MatMul(g.Reshape(y, {0, 16}), w);
      g.Output("mean", g.CrossEntropyLoss(logits, labels, {}));
      const Tensor sum = g.Sum(g.Concat({logits, g.Constant({FLOAT32, {2, 5}}, 3)}, 0));
      g.Output("sum", sum);
      auto session =
          Open(g, {.ipus_per_replica = ipus,
                   .fusion = fusion,
                   .programs = {{.name = "train",
                                 .loss = sum,
                                 .optimizer = SgdOptions{.learning_rate = 1, .momentum = 0.5f}}}});
      ASSERT_TRUE(session);
      ASSERT_TRUE(session->Run("train").ok());
      EXPECT_TRUE(std::isnan((*session->Stream<float>("mean", 0))[0]));
      EXPECT_EQ((*session->Stream<float>("sum", 0))[0], 30);
      EXPECT_EQ(*session->ReadFloats("weights"), RandomValues(4 * 27, 1));
      EXPECT_EQ(*session->ReadFloats("w"), RandomValues(80, 2));
    }
  }
}

// --- Random models ---

struct RandomModel {
  Graph graph;
  CompileOptions options;
  std::vector<std::string> variables;
};

// Operations on random earlier values with reshapes, branches and variables; with the same seed the
// same model, placed on up to `ipus` IPUs.
RandomModel Build(uint32_t seed, uint32_t ipus) {
  std::mt19937 random(seed);
  // Placement has a generator of its own: the model must not depend on the number of IPUs.
  std::mt19937 placement(seed + 1);
  RandomModel model;
  Graph& g = model.graph;
  const auto variable = [&](Dims dims) {
    const program::TensorType type{FLOAT32, std::move(dims)};
    const std::string name = absl::StrCat("w", model.variables.size());
    model.variables.push_back(name);
    return g.Variable(name, type, RandomValues(type.elements(), random()));
  };
  // A loss that depends on no variable would be refused.
  std::vector<Tensor> values{g.Multiply(g.Input("x", {FLOAT32, {8, 6}}), variable({6}))};
  const auto any = [&] { return values[random() % values.size()]; };
  for (int step = 5 + static_cast<int>(random() % 10); step > 0; --step) {
    g.SetIpu(placement() % ipus);
    Tensor x = any();
    switch (random() % 7) {
      case 0:
        x = g.Unary(v1::TANH, x);
        break;
      case 1:
        x = g.Add(x, any());
        break;
      case 2:
        x = g.Multiply(x, variable({6}));
        break;
      case 3:
        x = g.Unary(v1::TANH, g.MatMul(x, variable({6, 6})));
        break;
      case 4: {
        // There and back, with something in between.
        const Tensor square = g.Unary(v1::SIGMOID, g.Reshape(x, {6, 8}));
        g.SetIpu(placement() % ipus);
        x = g.Reshape(g.Multiply(square, variable({6, 1})), {8, 6});
        break;
      }
      case 5: {
        const auto row = [&] {
          return g.Constant({v1::INT32, {1}}, static_cast<int>(random() % 7));
        };
        const Tensor part = g.DynamicSlice(any(), row(), {0}, {2});
        x = g.DynamicUpdate(x, part, row(), {0});
        break;
      }
      default:
        x = g.Binary(v1::SUBTRACT, x, g.Reduce(v1::MEAN, any(), {0}));
    }
    values.push_back(x);
  }
  Tensor sum = g.Mean(values.back());
  for (int i = 0; i < 3; ++i) sum = g.Add(sum, g.Mean(any()));
  g.Output("loss", sum);
  g.Output("last", values.back());
  ProgramSpec train{.name = "train", .loss = sum, .optimizer = SgdOptions{}};
  train.device_iterations = 1 + random() % 2;
  train.accumulation = 1 + random() % 3;
  train.optimizer = SgdOptions{.learning_rate = 0.1f, .momentum = random() % 2 == 0 ? 0 : 0.5f};
  model.options = {.ipus_per_replica = ipus, .programs = {train, {.name = "evaluate"}}};
  return model;
}

constexpr uint32_t kSeeds = 60;

// Follows which tensor wrote each line of 64 bytes last. A tensor may be read only where its own
// value still lies, or, for a reshape, the value of a tensor of the same bytes.
class MemoryWatch {
 public:
  MemoryWatch(const v1::Executable& executable, uint32_t ipu)
      : ipu_(executable.ipus(ipu)), writers_((ipu_.arena_bytes() + 63) / 64, -1) {
    for (const v1::Variable& variable : executable.variables()) {
      if (variable.ipu() != ipu) continue;
      written_.insert(variable.tensor());
      Write(variable.tensor());
      variables_.insert(variable.tensor());
    }
  }

  void Run(uint32_t entry) {
    program::ForEachInstruction(ipu_, entry, [&](const Instruction& step, uint64_t) {
      written_.insert(step.outputs().begin(), step.outputs().end());
    });
    Execute(entry);
    // The host and the next run rely on the variables.
    for (uint32_t variable : variables_) Read(variable);
  }

 private:
  void Execute(uint32_t function) {
    for (const Instruction& step : ipu_.functions(static_cast<int>(function)).instructions()) {
      if (step.has_repeat()) {
        // Twice is enough to see what one round leaves for the next.
        for (int round = 0; round < 2; ++round) Execute(step.repeat().function());
        continue;
      }
      // A value that a step changes in place may have been written as another reshape.
      const std::set<uint32_t> outputs(step.outputs().begin(), step.outputs().end());
      for (uint32_t id : step.inputs()) Read(id, outputs.contains(id));
      for (uint32_t id : step.outputs()) Write(id);
    }
  }

  template <class Visit>
  void ForLines(uint32_t tensor, const Visit& visit) {
    const uint64_t begin = ipu_.tensors(tensor).offset();
    const uint64_t end = begin + program::ArenaBytes(ipu_.tensors(tensor));
    for (uint64_t line = begin / 64; line * 64 < end; ++line) visit(writers_[line]);
  }
  void Write(uint32_t tensor) {
    ForLines(tensor, [&](int64_t& writer) { writer = tensor; });
  }
  void Read(uint32_t tensor, bool in_place = false) {
    const int64_t first = writers_[ipu_.tensors(tensor).offset() / 64];
    ForLines(tensor, [&](int64_t writer) { EXPECT_EQ(writer, first) << "tensor " << tensor; });
    if (written_.contains(tensor) && !in_place) {
      EXPECT_EQ(first, tensor) << "tensor " << tensor << " was overwritten before it was read";
    } else {
      ASSERT_GE(first, 0) << "tensor " << tensor << " is read before it is written";
      const v1::Tensor& source = ipu_.tensors(first);
      EXPECT_EQ(source.offset(), ipu_.tensors(tensor).offset());
      // A view may repeat elements.
      EXPECT_EQ(program::ArenaBytes(source), program::ArenaBytes(ipu_.tensors(tensor)));
    }
  }

  const v1::Ipu& ipu_;
  std::vector<int64_t> writers_;  // by line
  std::set<uint32_t> written_;    // tensors that some instruction writes; the others are reshapes
  std::set<uint32_t> variables_;
};

TEST(RandomModelTest, NothingReadsWhatAnotherTensorOverwrote) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const RandomModel model = Build(seed, 1 << seed % 3);
    ASSERT_TRUE(model.graph.status().ok()) << model.graph.status();
    const auto compiled = Compile(model.graph, model.options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto executable = compiled->executable;
    for (const v1::Program& program : executable->proto().programs()) {
      for (uint32_t ipu = 0; ipu < executable->ipus_per_replica(); ++ipu) {
        SCOPED_TRACE(absl::StrCat(program.name(), " IPU ", ipu));
        MemoryWatch(executable->proto(), ipu).Run(program.functions(static_cast<int>(ipu)));
      }
    }
  }
}

TEST(RandomModelTest, CompilationIsPure) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const RandomModel first = Build(seed, 4), second = Build(seed, 4);
    const auto a = Compile(first.graph, first.options), b = Compile(second.graph, second.options);
    ASSERT_TRUE(a.ok()) << a.status();
    EXPECT_EQ(a->executable->Bytes(), b->executable->Bytes()) << seed;
    EXPECT_EQ(a->initial_values, b->initial_values) << seed;
  }
}

// All that training and evaluation leave behind, of a model on so many IPUs.
std::vector<float> Results(uint32_t seed, uint32_t ipus) {
  const RandomModel model = Build(seed, ipus);
  auto session = Open(model.graph, model.options);
  if (!session) return {};
  // A random model may have no use for its input.
  auto x = session->Stream<float>("x", 0);
  if (x.ok()) {
    const std::vector<float> data = RandomValues(x->size(), seed + 2);
    std::copy(data.begin(), data.end(), x->begin());
  }
  std::vector<float> results;
  for (const char* program : {"train", "evaluate", "train"}) {
    const auto cycles = session->Run(program);
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    for (const char* name : {"loss", "last"}) {
      const auto stream = *session->Stream<float>(name, 0);
      results.insert(results.end(), stream.begin(), stream.end());
    }
  }
  for (const std::string& name : model.variables) {
    const auto values = session->ReadFloats(name);
    EXPECT_TRUE(values.ok()) << values.status();
    results.insert(results.end(), values->begin(), values->end());
  }
  return results;
}

// Transfers move bits and change none, whatever lies where.
TEST(RandomModelTest, PlacementChangesNoBit) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> one = Results(seed, 1);
    ASSERT_FALSE(one.empty());
    EXPECT_EQ(Results(seed, 2), one);
    EXPECT_EQ(Results(seed, 4), one);
  }
}

}  // namespace
}  // namespace vpod::compiler
