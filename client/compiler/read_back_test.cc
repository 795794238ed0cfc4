// The printed form of a program after each pass reads back to the same program.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/compiler/assembly.h"
#include "client/compiler/backward.h"
#include "client/compiler/dead_code.h"
#include "client/compiler/fusion.h"
#include "client/compiler/graph_text.h"
#include "client/compiler/lowered_text.h"
#include "client/compiler/pipeline.h"
#include "client/compiler/recompute.h"
#include "client/compiler/text_test_programs.h"
#include "device/model/memory_options.h"

namespace vpod::compiler {
namespace {

// The form as its text says it.
template <class Form>
Form Reread(const Form& form, absl::StatusOr<Form> (*read)(absl::string_view)) {
  const std::string text = Print(form);
  absl::StatusOr<Form> again = read(text);
  EXPECT_TRUE(again.ok()) << again.status() << "\n" << text;
  if (!again.ok()) return form;
  EXPECT_EQ(Print(*again), text);
  return *std::move(again);
}

enum class Pass { kGradients, kDeadCode, kRecompute, kFusion, kLowering, kPipeline };

// Compiles by way of the text after one of the passes.
std::shared_ptr<const program::Executable> CompileFrom(Pass text, const TestProgram& test) {
  std::vector<LoweredProgram> programs;
  Assembler assembler(test.options.ipus_per_replica, ReplicasOf(test.graph, test.options));
  for (const ProgramSpec& spec : test.options.programs) {
    auto program = AddGradients(test.graph, spec, test.options);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return nullptr;
    if (text == Pass::kGradients) *program = Reread(*program, ReadGraph);
    RemoveDeadCode(*program);
    if (text == Pass::kDeadCode) *program = Reread(*program, ReadGraph);
    Recompute(test.options.recomputation, *program);
    if (text == Pass::kRecompute) *program = Reread(*program, ReadGraph);
    if (test.options.fusion && program->rounding.empty()) Fuse(*program);
    if (text == Pass::kFusion) *program = Reread(*program, ReadGraph);
    LoweredProgram lowered = Lower(*program);
    if (text == Pass::kLowering) lowered = Reread(lowered, ReadLowered);
    const absl::Status status =
        MakePipeline(*program, test.options.schedule, test.options.off_chip_activations, lowered);
    EXPECT_TRUE(status.ok()) << status;
    if (text == Pass::kPipeline) lowered = Reread(lowered, ReadLowered);
    assembler.AddState(lowered);
    programs.push_back(std::move(lowered));
  }
  for (LoweredProgram& program : programs) assembler.AddProgram(std::move(program));
  const auto executable = program::Executable::Make(
      assembler.Finish(), {}, assembler.Origins(model::ListOf(test.options.front.names)));
  EXPECT_TRUE(executable.ok()) << executable.status();
  return executable.ok() ? *executable : nullptr;
}

class ReadBackTest : public testing::TestWithParam<TestProgram> {};

TEST_P(ReadBackTest, GivesTheSameExecutable) {
  const auto direct = Compile(GetParam().graph, GetParam().options);
  ASSERT_TRUE(direct.ok()) << direct.status();
  for (Pass text : {Pass::kGradients, Pass::kDeadCode, Pass::kRecompute, Pass::kFusion,
                    Pass::kLowering, Pass::kPipeline}) {
    SCOPED_TRACE(static_cast<int>(text));
    const auto executable = CompileFrom(text, GetParam());
    ASSERT_NE(executable, nullptr);
    EXPECT_TRUE(executable->Bytes() == direct->executable->Bytes());
    EXPECT_TRUE(executable->OriginBytes() == direct->executable->OriginBytes());
    EXPECT_FALSE(executable->OriginBytes().empty());
  }
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(SmallPrograms, ReadBackTest, testing::ValuesIn(SmallPrograms()), kName);
INSTANTIATE_TEST_SUITE_P(Models, ReadBackTest, testing::ValuesIn(Models()), kName);

}  // namespace
}  // namespace vpod::compiler
