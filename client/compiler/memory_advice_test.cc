// The compiler advises what makes a program need less of the memory that its fullest tile uses, and
// says whether that is enough.
#include "device/model/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/compiler/compiler.h"
#include "client/compiler/planned_program.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::DataType;
using program::v1::FLOAT16;
using program::v1::FLOAT32;

struct Network {
  DataType type = FLOAT32;
  int64_t rows = 1 << 17, width = 512, layers = 8;
  int64_t on_second = 0;  // the number of layers, at the end, that IPU 1 has
};

// A network of products and activations, with a program that trains it or only runs it.
Model ModelOf(const Network& network, CompileOptions options, bool trains = true) {
  Graph g;
  Tensor x = g.Input("x", {network.type, {network.rows, network.width}});
  for (int64_t layer = 0; layer < network.layers; ++layer) {
    if (layer == network.layers - network.on_second) {
      g.SetIpu(1);
      g.SetStage(1);
    }
    x = g.Relu(g.MatMul(
        x, g.Variable(absl::StrCat("w", layer), {network.type, {network.width, network.width}},
                      graph::InitialValue::Filled(0.01))));
  }
  const Tensor loss = g.Mean(x);
  g.Output("loss", loss);
  ProgramSpec program{.name = "run"};
  if (trains) {
    if (!options.programs.empty()) program = options.programs[0];
    program.name = "run";
    program.loss = loss;
    if (!program.optimizer) program.optimizer = SgdOptions{};
  }
  options.programs = {program};
  return {std::move(g), std::move(options)};
}

// The error of a compilation that does not fit.
std::string Message(const Network& network, const CompileOptions& options, bool trains = true) {
  const Model model = ModelOf(network, options, trains);
  const auto compiled = Compile(model.graph, model.options);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted) << compiled.status();
  return std::string(compiled.status().message());
}

// The advice of that error, with the results of trials.
std::string Tried(const Network& network, const CompileOptions& options, bool trains = true) {
  const std::string message = Message(network, options, trains);
  const size_t at = message.find("To try: ");
  return at == std::string::npos ? message : message.substr(at);
}

// The advice of that error, without the results of trials.
std::string ToTry(const Network& network, const CompileOptions& options, bool trains = true) {
  return absl::StrReplaceAll(Tried(network, options, trains),
                             {{": fits", ""},
                              {": not alone", ""},
                              {": not tried", ""},
                              {" Advice that was not tried takes a change of the model.", ""},
                              {" Together, what was tried fits.", ""},
                              {" Even together, what was tried does not fit.", ""}});
}

constexpr char
    kRecomputation[] = "recomputation (CompileOptions::recomputation: kStandard)",
    kActivations[] = "activations off the chip (CompileOptions::off_chip_activations)",
    kLessBatch[] =
        "a smaller micro-batch with more gradient accumulation (shapes of inputs, "
        "ProgramSpec::accumulation)",
    kState[] = "the state of the optimiser off the chip (CompileOptions::off_chip_optimizer_state)",
    kWeights[] = "weights off the chip (CompileOptions::off_chip_weights)",
    kFloat16[] = "float16 (types of inputs and variables)",
    kSmallerOptimizer[] = "an optimiser with less state (ProgramSpec::optimizer)",
    kMoreIpus[] = "more IPUs per replica (CompileOptions::ipus_per_replica)",
    kMoreWithoutPipeline[] =
        "more IPUs per replica without a pipeline (CompileOptions::ipus_per_replica, schedule: "
        "kSharded)";

// A pipeline keeps activations of several micro-batches.
TEST(MemoryAdviceTest, KeptActivationsAreComputedAgain) {
  EXPECT_EQ(ToTry({}, {}),
            absl::StrCat("To try: ", kRecomputation, ", ", kActivations, ", ", kFloat16, ", ",
                         kMoreWithoutPipeline, ", ", kLessBatch, "."));
}

TEST(MemoryAdviceTest, WhatIsFloat16AlreadyIsNotAdvised) {
  EXPECT_EQ(ToTry({.type = FLOAT16, .rows = 1 << 18}, {}),
            absl::StrCat("To try: ", kRecomputation, ", ", kActivations, ", ", kMoreWithoutPipeline,
                         ", ", kLessBatch, "."));
}

// An IPU that computes all activations again at once needs memory for all of them; checkpoints let
// it do so part by part.
TEST(MemoryAdviceTest, WhatRecomputesAlreadyIsToldToDoLessAtOnce) {
  const Network tall{.type = FLOAT16, .rows = 1 << 19};
  EXPECT_EQ(ToTry(tall, {.recomputation = Recomputation::kAll}),
            absl::StrCat("To try: recomputation of less at once (CompileOptions::recomputation: "
                         "kStandard), ",
                         kMoreWithoutPipeline, ", ", kLessBatch, "."));
  EXPECT_THAT(ToTry(tall, {.recomputation = Recomputation::kStandard}),
              testing::Not(testing::HasSubstr("recomputation")));
}

TEST(MemoryAdviceTest, AMicroBatchOfOneCannotBeSmaller) {
  EXPECT_THAT(ToTry({.rows = 1, .width = 16384, .layers = 4}, {}),
              testing::Not(testing::HasSubstr("micro-batch")));
}

TEST(MemoryAdviceTest, StateOfTheOptimiserIsMovedOffTheChip) {
  const Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 7};
  CompileOptions options{.programs = {{.optimizer = AdamOptions{}}}};
  EXPECT_EQ(ToTry(wide, options), absl::StrCat("To try: ", kState, ", ", kMoreIpus, ", ",
                                               kSmallerOptimizer, ", ", kWeights, "."));
  options.total_replicas = 4;
  EXPECT_EQ(
      ToTry(wide, options),
      absl::StrCat("To try: ", kState,
                   ", the state of the optimiser shared out among the replicas of each instance "
                   "(CompileOptions::tensor_shards), ",
                   kMoreIpus, ", ", kSmallerOptimizer, ", ", kWeights, "."));
}

TEST(MemoryAdviceTest, AccumulatorsAreMovedOffTheChip) {
  const Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 9};
  constexpr char kAccumulators[] =
      "accumulators off the chip (CompileOptions::off_chip_accumulators)";
  EXPECT_EQ(ToTry(wide, {.programs = {{.accumulation = 2}}}),
            absl::StrCat("To try: ", kAccumulators, ", ", kMoreIpus, ", ", kWeights, "."));
}

// The state fits if four replicas share it out, and not if two do.
TEST(MemoryAdviceTest, StateIsSharedOutWithinAnInstance) {
  const Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 5};
  CompileOptions options{.total_replicas = 4, .programs = {{.optimizer = AdamOptions{}}}};
  const auto fits = [&](uint32_t shards) {
    CompileOptions shared = options;
    shared.tensor_shards = shards;
    const Model model = ModelOf(wide, shared);
    return Compile(model.graph, model.options).ok();
  };
  ASSERT_TRUE(fits(4));
  ASSERT_FALSE(fits(2));
  constexpr char kShared[] =
      "shared out among the replicas of each instance (CompileOptions::tensor_shards): ";
  EXPECT_THAT(Tried(wide, options), testing::HasSubstr(absl::StrCat(kShared, "fits")));
  options.front.instance_replicas = 2;
  EXPECT_THAT(Tried(wide, options), testing::HasSubstr(absl::StrCat(kShared, "not alone")));
  options.front.instance_replicas = 1;
  EXPECT_THAT(Tried(wide, options), testing::AllOf(testing::HasSubstr(kState),
                                                   testing::Not(testing::HasSubstr("shared out"))));
}

TEST(MemoryAdviceTest, WhatIsSharedOutAlreadyIsNotAdvised) {
  const Network wider{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 24};
  CompileOptions options{
      .total_replicas = 4, .tensor_shards = 4, .programs = {{.optimizer = AdamOptions{}}}};
  EXPECT_THAT(
      ToTry(wider, options),
      testing::AllOf(testing::HasSubstr(kState), testing::Not(testing::HasSubstr("shared out"))));
}

TEST(MemoryAdviceTest, StateThatIsOffTheChipAlreadyIsNotAdvised) {
  CompileOptions options{.off_chip_optimizer_state = true,
                         .programs = {{.optimizer = AdamOptions{}}}};
  EXPECT_THAT(ToTry({}, options), testing::Not(testing::HasSubstr("optimiser")));
}

TEST(MemoryAdviceTest, TheFullestIpuIsDescribed) {
  const CompileOptions two{.ipus_per_replica = 2};
  EXPECT_THAT(Message({.layers = 14, .on_second = 8}, two),
              testing::AllOf(testing::HasSubstr("On IPU 1, "),
                             testing::HasSubstr(". Too full as well: IPU 0. To try: ")));
  EXPECT_THAT(Message({.rows = 1 << 16, .layers = 9, .on_second = 1}, two),
              testing::AllOf(testing::HasSubstr("On IPU 0, "),
                             testing::Not(testing::HasSubstr("as well"))));
}

// Stages store activations that wait for later micro-batches. The last stage uses its activations
// at once.
TEST(MemoryAdviceTest, TheLastStageStoresNoActivations) {
  const CompileOptions pipeline{
      .ipus_per_replica = 2, .schedule = Schedule::kGrouped, .programs = {{.accumulation = 4}}};
  EXPECT_THAT(ToTry({.rows = 1 << 13, .layers = 65, .on_second = 64}, pipeline),
              testing::AllOf(testing::HasSubstr(kRecomputation),
                             testing::Not(testing::HasSubstr(kActivations))));
}

TEST(MemoryAdviceTest, InferenceHasNoGradients) {
  EXPECT_EQ(ToTry({.type = FLOAT16, .rows = 1 << 19}, {}, /*trains=*/false),
            absl::StrCat("To try: a smaller micro-batch (shapes of inputs), ", kMoreIpus,
                         ", a smaller memory proportion of products "
                         "(CompileOptions::products.memory_proportions 0.3, now 0.6)."));
}

// IPUs with different proportions have one number each.
TEST(MemoryAdviceTest, TheMemoryProportionThatWasTriedIsNamed) {
  CompileOptions options{.ipus_per_replica = 2};
  options.products.memory_proportions = {std::nullopt, 0.5f};
  options.front.names.memory_proportions = "--proportions";
  EXPECT_THAT(Tried({.type = FLOAT16, .rows = 1 << 19, .on_second = 4}, options, /*trains=*/false),
              testing::ContainsRegex("products \\(--proportions \\[0\\.3, 0\\.25\\], now \\[0\\.6, "
                                     "0\\.5\\]\\): (fits|not alone)"));
}

// A user who follows advice finds the result that the message has told.
TEST(MemoryAdviceTest, EachOptionIsTried) {
  const Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 7};
  const CompileOptions adam{.total_replicas = 4, .programs = {{.optimizer = AdamOptions{}}}};
  const std::string tried = Tried(wide, adam);
  int fits = 0;
  for (const auto& [text, follow] :
       std::vector<std::pair<std::string, std::function<void(CompileOptions&)>>>{
           {kState, [](auto& o) { o.off_chip_optimizer_state = true; }},
           {kWeights, [](auto& o) { o.off_chip_weights = true; }},
           {"shared out among the replicas of each instance (CompileOptions::tensor_shards)",
            [](auto& o) { o.tensor_shards = 4; }},
           {kSmallerOptimizer, [](auto& o) { o.programs[0].optimizer = SgdOptions{}; }}}) {
    CompileOptions options = adam;
    follow(options);
    const Model model = ModelOf(wide, options);
    const bool does_fit = Compile(model.graph, model.options).ok();
    fits += does_fit;
    EXPECT_THAT(tried, testing::HasSubstr(absl::StrCat(text, does_fit ? ": fits" : ": not alone")));
  }
  EXPECT_GT(fits, 0);
  EXPECT_LT(fits, 4);
  EXPECT_THAT(tried, testing::HasSubstr(absl::StrCat(kMoreIpus, ": not tried")));
  EXPECT_THAT(tried, testing::EndsWith(" Advice that was not tried takes a change of the model."));
}

TEST(MemoryAdviceTest, TrialsAreStopped) {
  const CompileOptions adam{.total_replicas = 4, .programs = {{.optimizer = AdamOptions{}}}};
  const Model model = ModelOf({.type = FLOAT16, .rows = 16, .width = 4096, .layers = 7}, adam);
  int trials = 0;
  const auto compiled =
      Compile(model.graph, model.options, [&](absl::string_view step, uint32_t, uint32_t) {
        if (step != "Trying what fits") return absl::OkStatus();
        ++trials;
        return absl::CancelledError("enough");
      });
  EXPECT_EQ(compiled.status(), absl::CancelledError("enough"));
  EXPECT_EQ(trials, 1);
}

TEST(MemoryAdviceTest, WhatIsNotEnoughAloneIsTriedTogether) {
  const CompileOptions adam{.programs = {{.optimizer = AdamOptions{}}}};
  Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 60};
  const std::string fits = Tried(wide, adam);
  EXPECT_THAT(fits, testing::HasSubstr(". Together, what was tried fits."));
  EXPECT_THAT(fits, testing::HasSubstr(absl::StrCat(kState, ": not alone")));
  EXPECT_THAT(fits, testing::HasSubstr(absl::StrCat(kWeights, ": not alone")));
  EXPECT_THAT(Tried({.type = FLOAT16, .rows = (1 << 20) - 4096}, {}),
              testing::HasSubstr(". Even together, what was tried does not fit."));
}

// If a program can build its model again, every piece of advice is tried, and the message names the
// program's own options.
TEST(MemoryAdviceTest, AProgramSpeaksOfItsOwnOptions) {
  const Network network{.rows = 1 << 17};
  CompileOptions options;
  options.front.names = {.float16 = "--half", .recomputation = "--recompute standard"};
  options.front.rebuild =
      [&](const std::vector<model::MemoryAdvice>& changes) -> absl::StatusOr<Model> {
    Network changed = network;
    for (model::MemoryAdvice change : changes) {
      if (change == model::MemoryAdvice::kFloat16) {
        changed.type = FLOAT16;
      } else if (change == model::MemoryAdvice::kMoreAccumulation) {
        changed.rows /= 2;
      } else {
        return absl::InvalidArgumentError("it is for one IPU");
      }
    }
    return ModelOf(changed, {});
  };
  const std::string tried = Tried(network, options);
  EXPECT_THAT(tried, testing::ContainsRegex("float16 \\(--half\\): (fits|not alone)"));
  EXPECT_THAT(tried,
              testing::ContainsRegex("recomputation \\(--recompute standard\\): (fits|not alone)"));
  EXPECT_THAT(tried, testing::ContainsRegex("gradient accumulation \\(.*\\): (fits|not alone)"));
  EXPECT_THAT(tried, testing::Not(testing::HasSubstr("IPUs per replica")));
  EXPECT_THAT(tried, testing::Not(testing::HasSubstr("not tried")));
}

// Advice without an option is not tried either.
TEST(MemoryAdviceTest, WhatAProgramHasNoOptionForIsNotAdvised) {
  CompileOptions options;
  options.front.names = model::NoOptions();
  options.front.names.recomputation = "--recompute standard";
  options.front.rebuild = [](const std::vector<model::MemoryAdvice>&) -> absl::StatusOr<Model> {
    ADD_FAILURE() << "advice without an option was tried";
    return absl::InvalidArgumentError("no option does it");
  };
  EXPECT_THAT(Tried({}, options),
              testing::MatchesRegex(
                  "To try: recomputation \\(--recompute standard\\): (fits|not alone)\\."));
}

// Agents and tools that find later that the executable does not fit use these names. The bytes of
// the executable do not depend on them.
TEST(MemoryAdviceTest, AnExecutableCarriesTheNamesOfOptions) {
  const Network small{.rows = 16, .width = 16, .layers = 2};
  CompileOptions options;
  const Model by_default = ModelOf(small, options);
  options.front.names.recomputation = "--recompute\nstandard";
  const Model named = ModelOf(small, options);
  const auto plain = Compile(by_default.graph, by_default.options),
             executable = Compile(named.graph, named.options);
  ASSERT_TRUE(plain.ok() && executable.ok()) << plain.status() << executable.status();
  EXPECT_EQ(model::OptionNamesOf(*executable->executable).recomputation,
            "--recompute\xef\xbf\xbdstandard");
  EXPECT_EQ(model::OptionNamesOf(*plain->executable).recomputation,
            model::OptionNames().recomputation);
  EXPECT_EQ(executable->executable->Bytes(), plain->executable->Bytes());
}

// The plan finds the results of the compiler's trials beside the executable.
TEST(MemoryAdviceTest, AnExplainedPlanHasAdviceTried) {
  const Model model = ModelOf({}, {});
  setenv(kPlanDirectoryVariable, "/nowhere", /*overwrite=*/1);
  const auto plain = Compile(model.graph, model.options);
  setenv(kPlanExplainVariable, "1", /*overwrite=*/1);
  const auto explained = Compile(model.graph, model.options);
  unsetenv(kPlanExplainVariable);
  unsetenv(kPlanDirectoryVariable);
  ASSERT_TRUE(plain.ok() && explained.ok()) << plain.status() << explained.status();
  const auto message = [](const Compiled& compiled) {
    return std::string(model::CheckMemory(*compiled.executable, {.num_replicas = 4}).message());
  };
  EXPECT_THAT(message(*plain), testing::AllOf(testing::HasSubstr(kRecomputation),
                                              testing::HasSubstr("None of this was tried")));
  EXPECT_THAT(message(*explained),
              testing::AllOf(testing::StartsWith("Out of memory: Cannot fit "),
                             testing::HasSubstr(absl::StrCat(kRecomputation, ": ")),
                             testing::Not(testing::HasSubstr("None of this was tried"))));
  EXPECT_EQ(explained->executable->Bytes(), plain->executable->Bytes());
}

TEST(MemoryAdviceTest, VariablesAreNamedWithTheirScope) {
  Graph g;
  Tensor x = g.Input("x", {FLOAT16, {16, 8192}});
  for (int block = 0; block < 9; ++block) {
    const Graph::Scope scope(g, absl::StrCat("block", block));
    x = g.MatMul(
        x, g.Variable("l2.weight", {FLOAT16, {8192, 8192}}, graph::InitialValue::Filled(0.01)));
  }
  g.Output("y", x);
  const absl::Status status = Compile(g, {.programs = {{.name = "run"}}}).status();
  EXPECT_THAT(std::string(status.message()),
              testing::ContainsRegex("largest variables are 'block[0-8]\\.l2\\.weight'"));
}

}  // namespace
}  // namespace vpod::compiler
