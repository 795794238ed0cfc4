#include "device/engine/ipu_names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vpod::engine {
namespace {

// A program "train" with so many kernels of each stage on each IPU.
std::string NameIn(const std::vector<std::vector<int>>& kernels, uint32_t ipu,
                   bool with_origins = true) {
  program::v1::Executable text;
  program::v1::Origins origins;
  text.set_ipus_per_replica(static_cast<uint32_t>(kernels.size()));
  text.add_programs()->set_name("train");
  for (const std::vector<int>& stages : kernels) {
    program::v1::Ipu* tensors = text.add_ipus();
    tensors->set_arena_bytes(64);
    tensors->add_tensors()->set_type(program::v1::FLOAT32);
    program::v1::Function* function = tensors->add_functions();
    program::v1::FunctionOrigins* of_function = origins.add_ipus()->add_functions();
    text.mutable_programs(0)->add_functions(0);
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      origins.add_origins()->set_stage(static_cast<uint32_t>(stage));
      for (int i = 0; i < stages[stage]; ++i) {
        program::v1::Instruction* instruction = function->add_instructions();
        instruction->mutable_unary()->set_operator_(program::v1::SQUARE);
        instruction->add_inputs(0);
        instruction->add_outputs(0);
        of_function->add_instructions(static_cast<uint32_t>(origins.origins_size()));
      }
    }
  }
  if (!with_origins) origins.Clear();
  const auto executable = program::Executable::Make(text, {}, origins);
  EXPECT_TRUE(executable.ok()) << executable.status();
  return executable.ok() ? NameOfIpu(**executable, 0, ipu) : "";
}

TEST(IpuNames, StagesAreNamedOnTheIpuThatRunsThem) {
  // IPU 1 prepares something for stage 0.
  const std::vector<std::vector<int>> pipeline = {{3, 0, 0, 2}, {1, 2, 1}};
  EXPECT_EQ(NameIn(pipeline, 0), "IPU 0 (stages 0, 3 of program 'train')");
  EXPECT_EQ(NameIn(pipeline, 1), "IPU 1 (stages 1, 2 of program 'train')");
  EXPECT_EQ(NameIn({{2, 0}, {0, 2}}, 1), "IPU 1 (stage 1 of program 'train')");
}

TEST(IpuNames, OneStageOrNoOriginsTellOfNone) {
  EXPECT_EQ(NameIn({{3}, {3}}, 1), "IPU 1");
  EXPECT_EQ(NameIn({{2, 0}, {0, 2}}, 1, false), "IPU 1");
}

}  // namespace
}  // namespace vpod::engine
