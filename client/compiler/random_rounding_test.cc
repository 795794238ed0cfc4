// Which instructions of a program with stochastic rounding round at random, and with what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "client/compiler/compiler.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using v1::FLOAT16;
using v1::FLOAT32;

// Two layers, the second on IPU `second`.
Compiled CompileLayers(v1::DataType type, Rounding rounding, uint32_t second = 0) {
  Graph g;
  const Tensor x = g.Input("x", {type, {4, 6}});
  const Tensor w1 = g.Variable("w1", {type, {6, 5}}, std::vector<float>(30, 0.5f));
  const Tensor hidden = g.Relu(g.Add(g.MatMul(x, w1), g.Constant({type, {}}, 0.25)));
  g.SetIpu(second);
  const Tensor w2 = g.Variable("w2", {type, {5, 3}}, std::vector<float>(15, 1));
  const Tensor loss = g.Mean(g.Cast(g.Unary(v1::TANH, g.MatMul(hidden, w2)), FLOAT32));
  g.Output("loss", loss);
  const auto compiled = Compile(
      g,
      {.ipus_per_replica = second + 1,
       .total_replicas = 2,
       .rounding = rounding,
       .programs = {{.name = "train", .accumulation = 2, .loss = loss, .optimizer = SgdOptions{}},
                    {.name = "evaluate"}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : Compiled();
}

// Calls `visit(IPU, instruction)` for what a program executes.
template <class Visit>
void ForInstructions(const Compiled& compiled, const char* program, const Visit& visit) {
  const uint32_t index = *compiled.executable->FindProgram(program);
  const v1::Executable& text = compiled.executable->proto();
  for (int ipu = 0; ipu < text.ipus_size(); ++ipu) {
    program::ForEachInstruction(
        text.ipus(ipu), compiled.executable->EntryOf(index, static_cast<uint32_t>(ipu)),
        [&](const v1::Instruction& instruction, uint64_t) { visit(ipu, instruction); });
  }
}

bool RoundsToHalf(const v1::Ipu& ipu, const v1::Instruction& instruction) {
  if (!program::FindOp(instruction.attributes_case())->rounds) return false;
  for (uint32_t output : instruction.outputs()) {
    if (ipu.tensors(static_cast<int>(output)).type() == FLOAT16) return true;
  }
  return false;
}

TEST(RandomRoundingTest, AllThatRoundsInTrainingDoesWithNumbersOfItsOwn) {
  for (const uint32_t second : {0, 1}) {
    const Compiled compiled = CompileLayers(FLOAT16, Rounding::kStochastic, second);
    const v1::Executable& text = compiled.executable->proto();
    std::set<uint32_t> numbers;
    std::map<std::string, int> ops;
    ForInstructions(compiled, "train", [&](int ipu, const v1::Instruction& instruction) {
      const std::string& name = program::OpName(instruction.attributes_case());
      EXPECT_EQ(instruction.has_rounding(), RoundsToHalf(text.ipus(ipu), instruction)) << name;
      if (!instruction.has_rounding()) return;
      ++ops[name];
      EXPECT_TRUE(numbers.insert(instruction.rounding().number()).second) << name;
    });
    EXPECT_EQ(ops.at("sgd"), 2);
    EXPECT_EQ(ops.at("mat_mul"), 5);  // the gradient of x is nobody's
    EXPECT_EQ(ops.count("map"), 0u);
    EXPECT_TRUE(compiled.initial_values.contains("random/seed"));
    EXPECT_EQ(compiled.initial_values.contains("random/seed/ipu1"), second == 1);
  }
}

TEST(RandomRoundingTest, CountersAreMadeBeforeTheyAreReadAndLieThereStill) {
  const Compiled compiled = CompileLayers(FLOAT16, Rounding::kStochastic, 1);
  int read = 0;
  for (const v1::Ipu& ipu : compiled.executable->proto().ipus()) {
    for (const v1::Function& function : ipu.functions()) {
      std::map<uint64_t, uint32_t> written;  // by offset, the last tensor there
      for (const v1::Instruction& instruction : function.instructions()) {
        if (instruction.has_rounding()) {
          const uint32_t counter = instruction.rounding().counter();
          EXPECT_EQ(written[ipu.tensors(static_cast<int>(counter)).offset()], counter);
          ++read;
        }
        for (uint32_t output : instruction.outputs())
          written[ipu.tensors(static_cast<int>(output)).offset()] = output;
      }
    }
  }
  EXPECT_GT(read, 10);
}

TEST(RandomRoundingTest, InferenceRoundsToNearest) {
  const Compiled compiled = CompileLayers(FLOAT16, Rounding::kStochastic);
  int instructions = 0;
  ForInstructions(compiled, "evaluate", [&](int, const v1::Instruction& instruction) {
    ++instructions;
    EXPECT_FALSE(instruction.has_rounding());
  });
  EXPECT_GT(instructions, 3);
}

// Without float16 the option changes nothing.
TEST(RandomRoundingTest, Float32IsNotRounded) {
  EXPECT_EQ(CompileLayers(FLOAT32, Rounding::kStochastic).executable->hash(),
            CompileLayers(FLOAT32, Rounding::kNearest).executable->hash());
  EXPECT_NE(CompileLayers(FLOAT16, Rounding::kStochastic).executable->hash(),
            CompileLayers(FLOAT16, Rounding::kStochasticEqualSeeds).executable->hash());
}

}  // namespace
}  // namespace vpod::compiler
