#include "client/compiler/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/program/executable.h"
#include "device/program/float_codec.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;
using v1::FLOAT32;
using v1::Instruction;
using v1::INT32;

struct Model {
  Graph graph;
  Tensor loss, logits;
};

// Two dense layers, the second on IPU `second`.
Model TwoLayers(uint32_t second = 0) {
  Model model;
  Graph& g = model.graph;
  const Tensor x = g.Input("x", {FLOAT32, {4, 6}});
  const Tensor labels = g.Input("labels", {INT32, {4}});
  const Tensor w1 = g.Variable("w1", {FLOAT32, {6, 5}}, std::vector<float>(30, 0.5f));
  const Tensor b1 = g.Variable("b1", {FLOAT32, {5}}, std::vector<float>(5, 0.25f));
  const Tensor hidden = g.Relu(g.Add(g.MatMul(x, w1), b1));
  g.SetIpu(second);
  const Tensor w2 = g.Variable("w2", {FLOAT32, {5, 3}}, std::vector<float>(15, 1));
  model.logits = g.MatMul(hidden, w2);
  model.loss = g.Mean(g.SoftmaxCrossEntropy(model.logits, labels));
  g.Output("loss", model.loss);
  return model;
}

v1::Executable Text(const Compiled& compiled) {
  const auto parsed = program::Executable::Parse(compiled.executable->Bytes());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? (*parsed)->proto() : v1::Executable();
}

v1::Executable CompileToText(const Graph& graph, const CompileOptions& options) {
  const auto compiled = Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? Text(*compiled) : v1::Executable();
}

// "fill fill repeat5(stream_in mat_mul) all_reduce"
std::string Shape(const v1::Ipu& ipu, uint32_t function) {
  std::vector<std::string> steps;
  for (const Instruction& step : ipu.functions(static_cast<int>(function)).instructions()) {
    if (step.has_repeat()) {
      steps.push_back(absl::StrCat("repeat", step.repeat().count(), "(",
                                   Shape(ipu, step.repeat().function()), ")"));
    } else {
      steps.push_back(program::OpName(step.attributes_case()));
    }
  }
  return absl::StrJoin(steps, " ");
}

std::string ShapeOf(const v1::Executable& executable, int program = 0) {
  return Shape(executable.ipus(0), executable.programs(program).functions(0));
}

template <class Visit>
void ForEach(const v1::Executable& executable, const Visit& visit) {
  const v1::Program& program = executable.programs(0);
  for (int ipu = 0; ipu < program.functions_size(); ++ipu) {
    program::ForEachInstruction(
        executable.ipus(ipu), program.functions(ipu),
        [&](const Instruction& step, uint64_t times) { visit(ipu, step, times); });
  }
}

std::vector<std::string> VariableNames(const v1::Executable& executable) {
  std::vector<std::string> names;
  for (const auto& variable : executable.variables()) names.push_back(variable.name());
  return names;
}

TEST(CompilerTest, SameGraphAndOptionsGiveTheSameBytes) {
  const auto compile = [] {
    const Model model = TwoLayers(1);
    return *Compile(model.graph, {.ipus_per_replica = 2,
                                  .total_replicas = 4,
                                  .programs = {{.name = "train",
                                                .device_iterations = 3,
                                                .accumulation = 2,
                                                .loss = model.loss,
                                                .optimizer = SgdOptions{.momentum = 0.9f}},
                                               {.name = "evaluate"}}});
  };
  const Compiled first = compile(), second = compile();
  EXPECT_EQ(first.executable->Bytes(), second.executable->Bytes());
  EXPECT_EQ(first.initial_values, second.initial_values);
}

// Each step is announced, and may be the last.
TEST(CompilerTest, ProgressSeesEachStepAndEndsTheCompilation) {
  const Model model = TwoLayers();
  const CompileOptions options{
      .programs = {{.name = "train", .loss = model.loss, .optimizer = SgdOptions{}},
                   {.name = "evaluate"}}};
  std::vector<uint32_t> steps;
  const auto compiled =
      Compile(model.graph, options, [&](absl::string_view, uint32_t done, uint32_t total) {
        steps.push_back(done);
        EXPECT_EQ(total, 15u);
        return absl::OkStatus();
      });
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_THAT(steps, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  for (uint32_t last : steps) {
    const auto stopped =
        Compile(model.graph, options, [&](absl::string_view, uint32_t done, uint32_t) {
          EXPECT_LE(done, last);
          return done == last ? absl::CancelledError("enough") : absl::OkStatus();
        });
    EXPECT_EQ(stopped.status(), absl::CancelledError("enough"));
  }
}

TEST(CompilerTest, TrainingProgram) {
  const Model model = TwoLayers();
  const v1::Executable executable =
      CompileToText(model.graph, {.programs = {{.name = "train",
                                                .device_iterations = 5,
                                                .accumulation = 3,
                                                .loss = model.loss,
                                                .optimizer = SgdOptions{}}}});
  ASSERT_EQ(executable.programs_size(), 1);
  const std::string shape = ShapeOf(executable);
  // Constants once a run; then for each update: clear three accumulators, the micro-batches, one
  // reduction, three updates.
  EXPECT_THAT(shape, testing::MatchesRegex(
                         "(fill )*repeat5\\(fill fill fill repeat3\\(stream_in stream_in mat_mul "
                         "map mat_mul softmax_cross_entropy reduce .*accumulate.*"
                         "stream_out\\) all_reduce sgd sgd sgd\\)"));
  int reductions = 0, accumulations = 0;
  ForEach(executable, [&](int, const Instruction& step, uint64_t times) {
    if (step.has_all_reduce()) {
      ++reductions;
      EXPECT_EQ(times, 5u);
      EXPECT_EQ(step.all_reduce().operator_(), v1::SUM);
      EXPECT_EQ(step.inputs_size(), 3);
      for (uint32_t input : step.inputs()) {
        EXPECT_TRUE(executable.ipus(0).tensors(input).wide_accumulator());
      }
    }
    if (step.has_accumulate()) {
      ++accumulations;
      EXPECT_EQ(times, 15u);
    }
  });
  EXPECT_EQ(reductions, 1);
  EXPECT_EQ(accumulations, 3);
}

TEST(CompilerTest, WithoutAccumulationGradientsAreReducedDirectly) {
  const Model model = TwoLayers();
  const v1::Executable executable = CompileToText(
      model.graph,
      {.total_replicas = 2,
       .programs = {{.name = "train", .loss = model.loss, .optimizer = SgdOptions{}}}});
  const std::string shape = ShapeOf(executable);
  EXPECT_THAT(shape,
              testing::MatchesRegex("(fill )*stream_in .*stream_out all_reduce sgd sgd sgd"));
  EXPECT_THAT(shape, testing::Not(HasSubstr("accumulate")));
  EXPECT_THAT(shape, testing::Not(HasSubstr("repeat")));
  for (const v1::Tensor& tensor : executable.ipus(0).tensors()) {
    EXPECT_FALSE(tensor.wide_accumulator());
  }
}

TEST(CompilerTest, ASingleReplicaUpdatesAVariableAsSoonAsNobodyReadsIt) {
  const Model model = TwoLayers();
  const auto shape = [&](Graph graph) {
    return ShapeOf(CompileToText(
        graph,
        {.programs = {
             {.name = "train", .loss = model.loss, .optimizer = SgdOptions{.momentum = 0.9f}}}}));
  };
  // w2 is read by the gradient of the hidden layer, after its own gradient was made.
  EXPECT_THAT(shape(model.graph),
              testing::MatchesRegex(".*cross_entropy_gradient mat_mul mat_mul binary sgd .*sgd .*"
                                    "mat_mul sgd stream_out"));
  EXPECT_THAT(shape(model.graph), testing::Not(HasSubstr("all_reduce")));
  // An output is the value before.
  Model other = TwoLayers();
  other.graph.Output("w2", other.graph.variables()[2]);
  EXPECT_THAT(shape(other.graph),
              testing::MatchesRegex(".*mat_mul sgd stream_out stream_out all_reduce sgd"));
}

TEST(CompilerTest, InferenceProgramHoldsOnlyWhatOutputsNeed) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2}});
  graph.Input("unused", {FLOAT32, {2}});
  graph.Variable("unused", {FLOAT32, {2}}, {1, 2});
  const Tensor w = graph.Variable("w", {FLOAT32, {2}}, {1, 2});
  graph.Relu(x);  // nobody looks at it
  graph.Output("y", graph.Multiply(x, w));
  const v1::Executable executable =
      CompileToText(graph, {.programs = {{.name = "run", .device_iterations = 7}}});
  EXPECT_EQ(ShapeOf(executable), "repeat7(stream_in binary stream_out)");
  EXPECT_THAT(VariableNames(executable), ElementsAre("w"));
  // The variable has a page of its own.
  EXPECT_EQ(executable.ipus(0).arena_bytes(), 4096 + 2 * 64u);
  ASSERT_EQ(executable.streams_size(), 2);
  EXPECT_EQ(executable.streams(0).name(), "x");
  EXPECT_TRUE(executable.streams(0).to_device());
  EXPECT_EQ(executable.streams(0).transfers_per_run(), 7u);
  EXPECT_EQ(executable.streams(1).name(), "y");
  EXPECT_FALSE(executable.streams(1).to_device());
}

TEST(CompilerTest, ProgramsShareStreamsAndVariables) {
  const Model model = TwoLayers();
  const v1::Executable executable =
      CompileToText(model.graph, {.programs = {{.name = "train",
                                                .device_iterations = 2,
                                                .accumulation = 3,
                                                .loss = model.loss,
                                                .optimizer = SgdOptions{}},
                                               {.name = "evaluate", .device_iterations = 4}}});
  ASSERT_EQ(executable.streams_size(), 3);
  std::map<std::string, uint32_t> transfers;
  for (const auto& stream : executable.streams()) {
    transfers[stream.name()] = stream.transfers_per_run();
  }
  EXPECT_EQ(transfers, (std::map<std::string, uint32_t>{{"x", 6}, {"labels", 6}, {"loss", 6}}));
  EXPECT_THAT(VariableNames(executable),
              testing::UnorderedElementsAre("w1", "b1", "w2", HyperParametersName(0)));
  EXPECT_THAT(ShapeOf(executable, 1), testing::StartsWith("repeat4(stream_in stream_in mat_mul"));
}

// Only one program runs at a time: their temporaries lie over each other.
TEST(CompilerTest, TemporariesOfProgramsShareTheArena) {
  const Model model = TwoLayers();
  const ProgramSpec train{
      .name = "train", .accumulation = 3, .loss = model.loss, .optimizer = SgdOptions{}};
  const ProgramSpec evaluate{.name = "evaluate"};
  const auto alone = CompileToText(model.graph, {.programs = {train}});
  const auto both = CompileToText(model.graph, {.programs = {train, evaluate}});
  EXPECT_EQ(both.ipus(0).arena_bytes(), alone.ipus(0).arena_bytes());
}

TEST(CompilerTest, MomentumNeedsAVelocityForEachVariable) {
  const Model model = TwoLayers();
  const auto compiled =
      Compile(model.graph, {.programs = {{.name = "train",
                                          .loss = model.loss,
                                          .optimizer = SgdOptions{.learning_rate = 0.125f,
                                                                  .momentum = 0.75f,
                                                                  .weight_decay = 0.25f,
                                                                  .nesterov = true}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const v1::Executable executable = Text(*compiled);
  EXPECT_THAT(VariableNames(executable),
              testing::UnorderedElementsAre("w1", "b1", "w2", "Accl___w1", "Accl___b1", "Accl___w2",
                                            HyperParametersName(0), OptimizerStepName(0)));
  std::map<uint32_t, std::string> names;
  for (const auto& variable : executable.variables()) names[variable.tensor()] = variable.name();
  int updates = 0;
  ForEach(executable, [&](int, const Instruction& step, uint64_t) {
    if (!step.has_sgd()) return;
    ++updates;
    const v1::Sgd& sgd = step.sgd();
    ASSERT_EQ(step.inputs_size(), 6);
    EXPECT_EQ(names[step.inputs(2)], HyperParametersName(0));
    EXPECT_EQ(names[step.inputs(4)], OptimizerStepName(0));
    EXPECT_EQ(names[step.inputs(5)], absl::StrCat("Accl___", names[step.inputs(0)]));
    EXPECT_TRUE(sgd.nesterov());
  });
  EXPECT_EQ(updates, 3);
  const auto value = [&](const std::string& name) {
    return program::DecodeFloats(compiled->initial_values.at(name).Bytes(), FLOAT32);
  };
  EXPECT_EQ(value("w1"), std::vector<float>(30, 0.5f));
  EXPECT_EQ(value("Accl___w1"), std::vector<float>(30, 0));
  EXPECT_EQ(value(HyperParametersName(0)), (std::vector<float>{0.125f, 0.25f, 0.75f, 0.0f}));
  EXPECT_EQ(value(OptimizerStepName(0)), std::vector<float>{0});
  EXPECT_EQ(compiled->initial_values.size(), 8u);
}

TEST(CompilerTest, MeanDividesByAccumulationAndReplicas) {
  const Model model = TwoLayers();
  for (const auto& [reduction, scale] :
       {std::pair{GradientReduction::kMean, 1.0f / 24}, {GradientReduction::kSum, 1.0f}}) {
    const v1::Executable executable =
        CompileToText(model.graph, {.total_replicas = 8,
                                    .programs = {{.name = "train",
                                                  .accumulation = 3,
                                                  .loss = model.loss,
                                                  .optimizer = SgdOptions{},
                                                  .reduction = reduction}}});
    ForEach(executable, [&, scale = scale](int, const Instruction& step, uint64_t) {
      if (step.has_sgd()) {
        EXPECT_EQ(step.sgd().gradient_scale(), scale);
      }
    });
  }
}

TEST(CompilerTest, ReshapesShareTheBytesOfTheirSource) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 6}});
  const Tensor w = graph.Variable("w", {FLOAT32, {12}}, std::vector<float>(12, 1));
  // Reshapes of an input, a variable, a result and a reshape.
  const Tensor sum = graph.Add(graph.Reshape(x, {3, 4}), graph.Reshape(w, {3, 4}));
  graph.Output("y", graph.Relu(graph.Reshape(graph.Reshape(sum, {12}), {4, 3})));
  graph.Output("z", graph.Reshape(x, {4, 3}));
  const v1::Executable executable = CompileToText(graph, {.programs = {{.name = "run"}}});
  EXPECT_EQ(ShapeOf(executable), "stream_in binary unary stream_out stream_out");
  const auto& steps = executable.ipus(0).functions(0).instructions();
  const auto offset = [&](uint32_t tensor) { return executable.ipus(0).tensors(tensor).offset(); };
  EXPECT_EQ(offset(steps[0].outputs(0)), offset(steps[1].inputs(0)));
  EXPECT_EQ(offset(executable.variables(0).tensor()), offset(steps[1].inputs(1)));
  EXPECT_EQ(offset(steps[1].outputs(0)), offset(steps[2].inputs(0)));
  EXPECT_EQ(offset(steps[0].outputs(0)), offset(steps[4].inputs(0)));
  EXPECT_EQ(program::TypeOf(executable.ipus(0).tensors(steps[2].inputs(0))).ToString(),
            "float32[4,3]");
}

struct Transfer {
  int from, to;
  uint32_t exchange;
  std::string type;
  uint64_t times;
  auto operator<=>(const Transfer&) const = default;
};

// The transfers as the senders and as the receivers see them, in order of exchange.
std::pair<std::vector<Transfer>, std::vector<Transfer>> Transfers(
    const v1::Executable& executable) {
  std::pair<std::vector<Transfer>, std::vector<Transfer>> result;
  ForEach(executable, [&](int ipu, const Instruction& step, uint64_t times) {
    const auto type = [&](uint32_t tensor) {
      return program::TypeOf(executable.ipus(ipu).tensors(tensor)).ToString();
    };
    if (!step.has_exchange()) return;
    const uint32_t index = step.exchange().exchange();
    const v1::Move& move = executable.exchanges(static_cast<int>(index)).moves(0);
    const Transfer transfer{
        static_cast<int>(move.from_ipu()), static_cast<int>(move.to_ipu()), index,
        type(ipu == static_cast<int>(move.from_ipu()) ? step.inputs(0) : step.outputs(0)), times};
    (transfer.from == ipu ? result.first : result.second).push_back(transfer);
  });
  const auto by_exchange = [](const Transfer& a, const Transfer& b) {
    return a.exchange < b.exchange;
  };
  std::sort(result.first.begin(), result.first.end(), by_exchange);
  std::sort(result.second.begin(), result.second.end(), by_exchange);
  return result;
}

TEST(CompilerTest, PlacementOnTwoIpusSendsWhatIsReceived) {
  const Model model = TwoLayers(1);
  const v1::Executable executable =
      CompileToText(model.graph, {.ipus_per_replica = 2,
                                  .programs = {{.name = "train",
                                                .device_iterations = 2,
                                                .accumulation = 3,
                                                .loss = model.loss,
                                                .optimizer = SgdOptions{}}}});
  const auto [sent, received] = Transfers(executable);
  EXPECT_EQ(sent, received);
  // The labels and the activations go forward, the gradient of the activations comes back, once a
  // micro-batch each.
  ASSERT_EQ(sent.size(), 3u);
  std::vector<std::string> moves;
  for (const Transfer& transfer : sent) {
    EXPECT_EQ(transfer.times, 6u);
    moves.push_back(absl::StrCat(transfer.from, ">", transfer.to, " ", transfer.type));
  }
  EXPECT_THAT(
      moves, testing::UnorderedElementsAre("0>1 int32[4]", "0>1 float32[4,5]", "1>0 float32[4,5]"));
  // Each IPU reduces and updates what it holds.
  std::map<int, size_t> reduced, updated;
  ForEach(executable, [&](int ipu, const Instruction& step, uint64_t) {
    if (step.has_all_reduce()) reduced[ipu] += step.inputs_size();
    if (step.has_sgd()) ++updated[ipu];
  });
  EXPECT_EQ(reduced, (std::map<int, size_t>{{0, 2}, {1, 1}}));
  EXPECT_EQ(updated, reduced);
  EXPECT_THAT(VariableNames(executable),
              testing::UnorderedElementsAre("w1", "b1", "w2", HyperParametersName(0),
                                            HyperParametersName(1)));
}

TEST(CompilerTest, AValueTravelsOnceToEachIpuThatReadsIt) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {6}});
  graph.SetIpu(1);
  const Tensor twice = graph.Add(x, x);
  const Tensor more = graph.Multiply(twice, graph.Reshape(x, {6}));
  graph.SetIpu(3);
  graph.Output("y", graph.Add(more, graph.Add(x, graph.Constant({FLOAT32, {}}, 1))));
  const v1::Executable executable =
      CompileToText(graph, {.ipus_per_replica = 4, .programs = {{.name = "run"}}});
  const auto [sent, received] = Transfers(executable);
  EXPECT_EQ(sent, received);
  std::vector<std::string> moves;
  for (const Transfer& transfer : sent)
    moves.push_back(absl::StrCat(transfer.from, ">", transfer.to));
  EXPECT_THAT(moves, testing::UnorderedElementsAre("0>1", "0>3", "1>3"));
}

}  // namespace
}  // namespace vpod::compiler
