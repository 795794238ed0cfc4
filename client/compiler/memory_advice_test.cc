// The advice follows from what a program has on the tiles when it does not fit them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"

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
};

// The end of the message about layers of products and activations that do not fit.
std::string ToTry(const Network& network, CompileOptions options, bool trains = true) {
  Graph g;
  Tensor x = g.Input("x", {network.type, {network.rows, network.width}});
  for (int64_t layer = 0; layer < network.layers; ++layer) {
    x = g.Relu(g.MatMul(
        x, g.Variable(absl::StrCat("w", layer), {network.type, {network.width, network.width}},
                      graph::InitialValue::Filled(0.01))));
  }
  const Tensor loss = g.Mean(x);
  g.Output("loss", loss);
  ProgramSpec program{.name = "run"};
  if (trains) program.loss = loss;
  if (!options.programs.empty()) {
    program.optimizer = options.programs[0].optimizer;
    program.accumulation = options.programs[0].accumulation;
  }
  options.programs = {program};
  const auto compiled = Compile(g, options);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted) << compiled.status();
  const std::string message(compiled.status().message());
  const size_t at = message.find("To try: ");
  return at == std::string::npos ? message : message.substr(at);
}

constexpr char kRecomputation[] = "recomputation (option recomputation)",
               kActivations[] = "activations off the chip (option off_chip_activations)",
               kLessBatch[] =
                   "a smaller micro-batch with more gradient accumulation (option accumulation)",
               kState[] =
                   "the state of the optimiser off the chip (option off_chip_optimizer_state)",
               kWeights[] = "weights off the chip (option off_chip_weights)",
               kMoreIpus[] = "more IPUs per replica (option ipus_per_replica).";

TEST(MemoryAdviceTest, KeptActivationsAreComputedAgain) {
  EXPECT_EQ(ToTry({}, {}), absl::StrCat("To try: ", kRecomputation, ", ", kActivations,
                                        ", float16, ", kLessBatch, ", ", kMoreIpus));
}

TEST(MemoryAdviceTest, WhatIsFloat16AlreadyIsNotAdvised) {
  EXPECT_EQ(ToTry({.type = FLOAT16, .rows = 1 << 18}, {}),
            absl::StrCat("To try: ", kRecomputation, ", ", kActivations, ", ", kLessBatch, ", ",
                         kMoreIpus));
}

TEST(MemoryAdviceTest, WhatRecomputesAlreadyIsNotToldToDoSo) {
  EXPECT_EQ(ToTry({.type = FLOAT16, .rows = 1 << 19}, {.recomputation = Recomputation::kAll}),
            absl::StrCat("To try: ", kLessBatch, ", ", kMoreIpus));
}

TEST(MemoryAdviceTest, StateOfTheOptimiserIsMovedOffTheChip) {
  const Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 7};
  CompileOptions options{.programs = {{.optimizer = AdamOptions{}}}};
  EXPECT_EQ(ToTry(wide, options),
            absl::StrCat("To try: ", kState, ", an optimiser with less state, ", kWeights, ", ",
                         kMoreIpus));
  options.total_replicas = 4;
  EXPECT_EQ(ToTry(wide, options),
            absl::StrCat("To try: ", kState,
                         ", the state of the optimiser shared out among replicas (option "
                         "tensor_shards), an optimiser with less state, ",
                         kWeights, ", ", kMoreIpus));
}

TEST(MemoryAdviceTest, AccumulatorsAreMovedOffTheChip) {
  const Network wide{.type = FLOAT16, .rows = 16, .width = 4096, .layers = 9};
  constexpr char kAccumulators[] = "accumulators off the chip (option off_chip_accumulators)";
  EXPECT_EQ(ToTry(wide, {.programs = {{.accumulation = 2}}}),
            absl::StrCat("To try: ", kAccumulators, ", ", kWeights, ", ", kMoreIpus));
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

TEST(MemoryAdviceTest, InferenceHasNoGradients) {
  EXPECT_EQ(ToTry({.type = FLOAT16, .rows = 1 << 19}, {}, /*trains=*/false),
            absl::StrCat("To try: a smaller micro-batch, a smaller memory proportion of products "
                         "(option products.memory_proportions), ",
                         kMoreIpus));
}

}  // namespace
}  // namespace vpod::compiler
