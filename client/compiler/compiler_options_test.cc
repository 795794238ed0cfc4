// Tests of the compiler's refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "device/program/executable.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using testing::HasSubstr;
using v1::FLOAT16;
using v1::FLOAT32;
using v1::INT32;

struct Model {
  Graph graph;
  Tensor loss;
};

// Its input is value 0, its integer input value 1.
Model Regression(uint32_t ipu = 0) {
  Model model;
  Graph& g = model.graph;
  const Tensor x = g.Input("x", {FLOAT32, {4}});
  const Tensor n = g.Input("n", {INT32, {4}});
  g.SetIpu(ipu);
  const Tensor w = g.Variable("w", {FLOAT32, {}}, {1});
  model.loss = g.Mean(g.Multiply(g.Multiply(x, w), g.Cast(n, FLOAT32)));
  g.Output("loss", model.loss);
  return model;
}

struct BadOptions {
  std::string message;
  std::function<void(CompileOptions&)> change;
};

AutomaticLossScale& Scaled(CompileOptions& options) {
  options.programs[0].loss_scale = 1;
  return options.programs[0].automatic_loss_scale.emplace();
}

HistogramLossScale& Counted(CompileOptions& options) {
  options.programs[0].loss_scale = 1;
  return options.programs[0].histogram_loss_scale.emplace();
}

TEST(CompilerOptionsTest, BadOptionsAreRefusedByName) {
  const Model model = Regression();
  const BadOptions kBad[] = {
      {"no program to compile", [](auto& o) { o.programs.clear(); }},
      {"program 'train': device iterations and accumulation must be 1 or more",
       [](auto& o) { o.programs[0].device_iterations = 0; }},
      {"program 'train': device iterations and accumulation must be 1 or more",
       [](auto& o) { o.programs[0].accumulation = 0; }},
      {"program 'train' has a loss and no optimizer: choose one, such as SGD",
       [](auto& o) { o.programs[0].optimizer.reset(); }},
      {"program 'train' has an optimizer and no loss: without a loss nothing is trained",
       [](auto& o) { o.programs[0].loss.reset(); }},
      {"program 'evaluate' has groups and no loss", [](auto& o) { o.programs[1].groups = {{}}; }},
      {"program 'evaluate' has an accumulation above 1 and no loss",
       [](auto& o) { o.programs[1].accumulation = 2; }},
      {"program 'evaluate' has clip_norm and no loss",
       [](auto& o) { o.programs[1].clip_norm = 1; }},
      {"program 'evaluate' has clip_value and no loss",
       [](auto& o) { o.programs[1].clip_value = 1; }},
      {"program 'evaluate' has loss_scale and no loss",
       [](auto& o) { o.programs[1].loss_scale = 2; }},
      {"program 'evaluate' has automatic_loss_scale and no loss",
       [](auto& o) { o.programs[1].automatic_loss_scale.emplace(); }},
      {"program 'evaluate' has histogram_loss_scale and no loss",
       [](auto& o) { o.programs[1].histogram_loss_scale.emplace(); }},
      {"program 'evaluate' has reduction and no loss",
       [](auto& o) { o.programs[1].reduction = GradientReduction::kSum; }},
      {"program 'train': the loss is float32[4], must have one element: take its mean or its sum",
       [](auto& o) { o.programs[0].loss = Tensor{0}; }},
      {"a program has no name", [](auto& o) { o.programs[1].name = ""; }},
      {"two programs are called 'train'", [](auto& o) { o.programs[1].name = "train"; }},
      {"total_replicas is 0, must be 1 or more", [](auto& o) { o.total_replicas = 0; }},
      {"ipus_per_replica is 0, must be a power of two from 1 to 64",
       [](auto& o) { o.ipus_per_replica = 0; }},
      {"ipus_per_replica is 3, must be", [](auto& o) { o.ipus_per_replica = 3; }},
      {"ipus_per_replica is 4294967295, must be", [](auto& o) { o.ipus_per_replica = 0xffffffff; }},
      // Products that do not fit 32 bits must not wrap into something small.
      {"program 'train': 65536 device iterations × 65536 micro-batches",
       [](auto& o) { o.programs[0].device_iterations = o.programs[0].accumulation = 65536; }},
      {"program 'train': the loss is not a value of the graph",
       [](auto& o) { o.programs[0].loss = Tensor{}; }},
      {"program 'train': the loss is not a value of the graph",
       [](auto& o) {
         o.programs[0].loss = Tensor{};
         o.programs[0].loss_scale = 8;
       }},
      {"program 'train': the loss is int32[4], must be a float",
       [](auto& o) { o.programs[0].loss = Tensor{1}; }},
      {"programs 'train' and 'again' have different optimisers",
       [](auto& o) {
         o.programs.push_back(o.programs[0]);
         o.programs[2].name = "again";
         std::get<SgdOptions>(*o.programs[2].optimizer).learning_rate = 7;
       }},
      {"programs 'train' and 'again' have different optimisers",
       [](auto& o) {
         o.programs.push_back(o.programs[0]);
         o.programs[2].name = "again";
         o.programs[2].loss_scale = 7;
       }},
      {"the type of partial results is int32, must be float32 or float16",
       [](auto& o) { o.products.partials = INT32; }},
      {"the memory proportion of IPU 0 is 0, must be above 0 and at most 1",
       [](auto& o) { o.products.memory_proportions = {0.0f}; }},
      {"the memory proportion of IPU 0 is 1.5, must be above 0 and at most 1",
       [](auto& o) { o.products.memory_proportions = {1.5f}; }},
      {"memory_proportions has 2 entries, but a replica has 1 IPU",
       [](auto& o) {
         o.products.memory_proportions = {0.5f, 0.5f};
       }},
      {"the loss scale is 0, must be above 0 and finite",
       [](auto& o) { o.programs[0].loss_scale = 0; }},
      {"an automatic loss scale needs a loss scale to start with",
       [](auto& o) { o.programs[0].automatic_loss_scale.emplace(); }},
      {"the loss scale's growth is 1, must be above 1 and finite",
       [](auto& o) { Scaled(o).growth = 1; }},
      {"the loss scale's backoff is 1, must be above 0 and below 1",
       [](auto& o) { Scaled(o).backoff = 1; }},
      {"the loss scale's interval is 0, must be 1 or more",
       [](auto& o) { Scaled(o).interval = 0; }},
      {"an automatic loss scale needs a loss scale to start with",
       [](auto& o) { o.programs[0].histogram_loss_scale.emplace(); }},
      {"program 'train' has automatic_loss_scale and histogram_loss_scale, may have one of them",
       [](auto& o) {
         Scaled(o);
         Counted(o);
       }},
      {"the bin edge of the loss scale is 0, must be above 0 and at most 1",
       [](auto& o) { Counted(o).bin_edge = 0; }},
      {"the loss scale's upper proportion is 1, must be above 0 and below 1",
       [](auto& o) { Counted(o).upper_proportion = 1; }},
      {"the loss scale's period is 0, must be 1 to 16777216",
       [](auto& o) { Counted(o).period = 0; }},
      {"the loss scale's period is 16777217, must be 1 to 16777216",
       [](auto& o) { Counted(o).period = 16777217; }},
      {"program 'train': the norm to which gradients are clipped is 0, must be above 0 and finite",
       [](auto& o) { o.programs[0].clip_norm = 0; }},
      {"program 'train': the value to which gradients are clipped is -1, must be above 0",
       [](auto& o) { o.programs[0].clip_value = -1; }},
      {"program 'train': the learning rate is -1, must be 0 or more and finite",
       [](auto& o) { o.programs[0].optimizer = SgdOptions{.learning_rate = -1}; }},
      {"program 'train': the learning rate is nan, must be 0 or more and finite",
       [](auto& o) { o.programs[0].optimizer = RmsPropOptions{.learning_rate = NAN}; }},
      {"program 'train': beta2 is 1, must be 0 or more and below 1",
       [](auto& o) { o.programs[0].optimizer = AdamOptions{.beta2 = 1}; }},
      {"program 'train': max_weight_norm is -1, must be 0 or more",
       [](auto& o) { o.programs[0].optimizer = LambOptions{.max_weight_norm = -1}; }},
      {"program 'train': max_weight_norm is nan, must be 0 or more",
       [](auto& o) { o.programs[0].optimizer = LambOptions{.max_weight_norm = NAN}; }},
      {"program 'train': Nesterov's momentum needs a momentum above 0 and a dampening of 0",
       [](auto& o) { o.programs[0].optimizer = SgdOptions{.nesterov = true}; }},
      {"program 'train': Nesterov's momentum needs the separate form of SGD",
       [](auto& o) {
         o.programs[0].optimizer = SgdOptions{.momentum = 0.5f, .nesterov = true, .combined = true};
       }},
      {"program 'train': the velocity scaling is 0, must be above 0 and finite",
       [](auto& o) {
         o.programs[0].optimizer = SgdOptions{.combined = true, .velocity_scaling = 0};
       }},
      {"program 'train', parameter group 1: the momentum is -1, must be 0 or more and finite",
       [](auto& o) {
         o.programs[0].groups = {{{"w"}, SgdOptions{.momentum = -1}}};
       }},
      {"program 'train': there is no trainable variable 'x'",
       [](auto& o) {
         o.programs[0].groups = {{{"x"}, SgdOptions{}}};
       }},
      {"program 'train': two parameter groups name trainable variable 'w'",
       [](auto& o) {
         o.programs[0].groups = {{{"w"}, SgdOptions{}}, {{"w"}, AdamOptions{}}};
       }},
  };
  for (const auto& [message, change] : kBad) {
    SCOPED_TRACE(message);
    CompileOptions options{
        .programs = {{.name = "train", .loss = model.loss, .optimizer = SgdOptions{}},
                     {.name = "evaluate"}}};
    ASSERT_TRUE(Compile(model.graph, options).ok());
    change(options);
    const auto compiled = Compile(model.graph, options);
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(compiled.status().message()), HasSubstr(message));
  }
}

TEST(CompilerOptionsTest, ALossOfNoVariableIsRefused) {
  Graph graph;
  const Tensor loss = graph.Mean(graph.Input("x", {FLOAT32, {4}}));
  const CompileOptions options{
      .programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{}}}};
  EXPECT_EQ(Compile(graph, options).status(),
            absl::InvalidArgumentError("program 'train': the graph has no variable, so that "
                                       "nothing would be trained"));
  graph.Variable("w", {FLOAT32, {4}}, graph::InitialValue::Filled(1));
  EXPECT_EQ(Compile(graph, options).status(),
            absl::InvalidArgumentError("program 'train': the loss depends on no variable by way of "
                                       "gradients, so that nothing would be trained"));
}

TEST(CompilerOptionsTest, MeanOverManyMicroBatchesAndReplicasDoesNotWrap) {
  Graph graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {}}, {1});
  const auto compiled = Compile(graph, {.total_replicas = 65536,
                                        .programs = {{.name = "train",
                                                      .accumulation = 65536,
                                                      .loss = graph.Relu(w),
                                                      .optimizer = SgdOptions{}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto executable = compiled->executable;
  int updates = 0;
  program::ForEachInstruction(executable->proto().ipus(0), executable->EntryOf(0, 0),
                              [&](const v1::Instruction& step, uint64_t) {
                                if (!step.has_sgd()) return;
                                EXPECT_EQ(step.sgd().gradient_scale(), 1.0f / 4294967296.0f);
                                ++updates;
                              });
  EXPECT_EQ(updates, 1);
}

// Options reach the products of the gradients as well, each as its operands and IPU allow.
TEST(CompilerOptionsTest, ProductsArePlannedAsTheOptionsSay) {
  Graph graph;
  const auto product = [&](v1::DataType type, uint32_t ipu) {
    graph.SetIpu(ipu);
    const std::string name = absl::StrCat(ipu);
    const Tensor w = graph.Variable("w" + name, {type, {4, 4}}, graph::InitialValue::Filled(1));
    return graph.Cast(graph.MatMul(graph.Input("x" + name, {type, {4, 4}}), w), FLOAT32);
  };
  const Tensor half = product(FLOAT16, 0), single = product(FLOAT32, 1);
  const Tensor loss = graph.Mean(graph.Add(half, single));
  graph.Output("loss", loss);
  CompileOptions options{.ipus_per_replica = 2};
  options.products = {.partials = FLOAT16, .memory_proportions = {std::nullopt, 0.25f}};
  options.programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{}}};
  const auto compiled = Compile(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (int ipu : {0, 1}) {
    int products = 0;
    program::ForEachInstruction(
        compiled->executable->proto().ipus(ipu), compiled->executable->EntryOf(0, ipu),
        [&](const v1::Instruction& step, uint64_t) {
          if (!step.has_mat_mul()) return;
          ++products;
          const v1::ProductPlan& plan = step.mat_mul().plan();
          EXPECT_EQ(plan.partials(), ipu == 0 ? FLOAT16 : v1::DATA_TYPE_UNSPECIFIED);
          EXPECT_EQ(plan.memory_proportion(), ipu == 0 ? 0 : 0.25f);
        });
    EXPECT_EQ(products, 2);
  }
}

TEST(CompilerOptionsTest, MistakesInTheGraphAreReported) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  graph.Output("y", graph.MatMul(x, x));
  EXPECT_EQ(Compile(graph, {.programs = {{.name = "run"}}}).status(), graph.status());

  const Model far = Regression(2);
  EXPECT_EQ(
      Compile(far.graph, {.ipus_per_replica = 2, .programs = {{.name = "run"}}}).status().message(),
      "'w' is on IPU 2, a replica has IPUs 0 to 1");

  Graph constant;
  constant.Output("y", constant.Constant({INT32, {}}, 0.5));
  EXPECT_THAT(std::string(Compile(constant, {.programs = {{.name = "run"}}}).status().message()),
              HasSubstr("value 0.5 is not of type int32"));
}

// A variable of such a name would share its bytes with the optimiser's state.
TEST(CompilerOptionsTest, NamesOfOptimizerStateAreReserved) {
  for (const std::string name : {"Accl___w", "Accl2___w", "optimizer/step/ipu0"}) {
    Graph graph;
    const Tensor w = graph.Variable("w", {FLOAT32, {}}, {1});
    const Tensor other = graph.Variable(name, {FLOAT32, {}}, {1});
    const Tensor loss = graph.Add(w, other);
    const auto compiled = Compile(
        graph,
        {.programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{.momentum = 0.5f}}}});
    EXPECT_EQ(compiled.status().message(),
              absl::StrCat("the variable name '", name, "' is reserved for the optimiser"));
  }
}

}  // namespace
}  // namespace vpod::compiler
