#include "device/engine/packing.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace vpod::engine {
namespace {

// Tensor 0 is packed by steps of function 0, which programs repeat; tensor 2 lies apart from it,
// tensor 3 over it.
constexpr char kTensors[] = R"pb(
  tensors { type: FLOAT32 dims: 16 offset: 0 }
  tensors { type: FLOAT32 dims: 16 offset: 64 }
  tensors { type: FLOAT32 dims: 16 offset: 128 }
  tensors { type: INT32 offset: 32 }
  functions {
    instructions {
      copy {}
      inputs: 0
      outputs: 1
    }
    instructions {
      copy {}
      inputs: 1
      outputs: 2
    }
  }
)pb";

class PackingTest : public testing::Test {
 protected:
  // The kernel of the first instruction of function 0 packs its input.
  PackingPlan Plan(const std::string& functions, uint32_t entry) {
    program::v1::Executable executable;
    EXPECT_TRUE(
        google::protobuf::TextFormat::ParseFromString(kTensors + functions, executable.add_ipus()));
    executable.add_programs()->add_functions(entry);
    std::vector<std::vector<const Kernel*>> kernels;
    for (const auto& function : executable.ipus(0).functions())
      kernels.emplace_back(static_cast<size_t>(function.instructions_size()), &plain_);
    packs_.packed_bytes = 100;
    kernels[0][0] = &packs_;
    return PlanPacking(executable, 0, kernels);
  }

  Kernel plain_, packs_;
};

TEST_F(PackingTest, KeepsWhatIsReadMoreOftenThanWritten) {
  const PackingPlan plan = Plan(
      "functions { instructions { repeat { function: 0 count: 2 } }"
      "            instructions { copy {} inputs: 2 outputs: 0 } }",
      1);
  ASSERT_TRUE(plan.kept[0][0].has_value());
  EXPECT_FALSE(plan.kept[0][1].has_value());
  EXPECT_EQ(plan.kept_bytes, 128u);
  EXPECT_EQ(plan.ranges, 1u);
  EXPECT_TRUE(plan.written[0][1].empty());
  EXPECT_EQ(plan.written[1][1], std::vector<uint32_t>{0});
}

TEST_F(PackingTest, KeepsNothingThatEachRoundWrites) {
  const PackingPlan plan = Plan(
      "functions { instructions { copy {} inputs: 2 outputs: 0 }"
      "            instructions { call { function: 0 } } }"
      "functions { instructions { repeat { function: 1 count: 9 } } }",
      2);
  EXPECT_FALSE(plan.kept[0][0].has_value());
  EXPECT_EQ(plan.kept_bytes, 0u);
}

TEST_F(PackingTest, KeepsNothingUnderACounter) {
  const PackingPlan plan =
      Plan("functions { instructions { repeat { function: 0 count: 9 } outputs: 3 } }", 1);
  EXPECT_FALSE(plan.kept[0][0].has_value());
}

TEST(KeptFormsTest, GoStaleWhenTheirOperandIsWritten) {
  PackingPlan plan{.kept_bytes = 256, .ranges = 2};
  KeptForms forms(plan);
  const KeptOperand first{0, 0}, second{128, 0}, other{192, 1};
  EXPECT_FALSE(forms.IsCurrent(first));
  for (const KeptOperand& operand : {first, second, other}) forms.Packed(operand);
  EXPECT_TRUE(forms.IsCurrent(first) && forms.IsCurrent(second) && forms.IsCurrent(other));
  forms.Written({{0}});
  EXPECT_FALSE(forms.IsCurrent(first));
  EXPECT_FALSE(forms.IsCurrent(second));
  EXPECT_TRUE(forms.IsCurrent(other));
  forms.Packed(first);
  EXPECT_TRUE(forms.IsCurrent(first));
  forms.Written({{kAllRanges}});
  EXPECT_FALSE(forms.IsCurrent(first) || forms.IsCurrent(other));
}

}  // namespace
}  // namespace vpod::engine
