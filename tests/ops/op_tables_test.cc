// Walks the op tables: every op that an instruction may hold has a row in each room that has to
// know it.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "client/graph/gradients/gradients.h"
#include "device/engine/kernels/kernel.h"
#include "device/model/op_plans.h"
#include "device/program/op.h"

namespace vpod {
namespace {

using google::protobuf::FieldDescriptor;
using program::v1::Instruction;

class OpTablesTest : public testing::TestWithParam<const FieldDescriptor*> {
 protected:
  const FieldDescriptor& field() const { return *GetParam(); }
  program::OpKind kind() const { return static_cast<program::OpKind>(field().number()); }
};

std::vector<const FieldDescriptor*> Steps() {
  const auto* oneof = Instruction::descriptor()->FindOneofByName("attributes");
  std::vector<const FieldDescriptor*> steps;
  for (int i = 0; i < oneof->field_count(); ++i) steps.push_back(oneof->field(i));
  return steps;
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTablesTest, testing::ValuesIn(Steps()),
                         [](const auto& info) { return info.param->name(); });

TEST_P(OpTablesTest, HasATypeRuleAndItsOperands) {
  const program::OpDef* op = program::FindOp(kind());
  ASSERT_NE(op, nullptr);
  EXPECT_TRUE(op->infer != nullptr || op->check != nullptr);
  EXPECT_EQ(program::OpName(kind()), field().name());
  for (const program::Arity& arity : {op->inputs, op->outputs}) {
    EXPECT_GE(arity.least, 0);
    EXPECT_GE(arity.most, arity.least);
  }
  for (const program::InPlace& pair : op->in_place) {
    EXPECT_LT(pair.input, op->inputs.most);
    EXPECT_LT(pair.output, op->outputs.most);
  }
  // Only control may have none.
  EXPECT_TRUE(op->role == program::Role::kControl || op->inputs.most != 0 || op->outputs.most != 0);
}

// Nothing else says how many there are: a rule may index its inputs without looking.
TEST_P(OpTablesTest, IsAskedForTypesOnlyWithTheInputsThatItTakes) {
  const program::OpDef* op = program::FindOp(kind());
  ASSERT_NE(op, nullptr);
  if (op->infer == nullptr) return;
  Instruction instruction;
  instruction.GetReflection()->MutableMessage(&instruction, &field());
  std::vector<int> wrong;
  if (op->inputs.least > 0) wrong.push_back(op->inputs.least - 1);
  if (op->inputs.most != program::kAnyNumber) wrong.push_back(op->inputs.most + 1);
  for (int number : wrong) {
    const std::vector<program::TensorType> inputs(static_cast<size_t>(number));
    const auto types = program::InferTypes(instruction, inputs);
    EXPECT_EQ(types.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(types.status().message().find(" takes "), absl::string_view::npos);
  }
}

TEST_P(OpTablesTest, HasConstraintsOrAReasonForHavingNone) {
  static const std::map<std::string, std::string> kReasons = {
      {"call", "Validate checks the function"},
      {"cast", "every type becomes every other"},
      {"copy", "tensors of every type are copied"},
      {"replica_index", "there are no inputs and attributes"},
  };
  const program::OpDef* op = program::FindOp(kind());
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->constraints.empty(), kReasons.contains(field().name()));
}

TEST_P(OpTablesTest, HasAKernelIfThatIsItsRole) {
  const program::OpDef* op = program::FindOp(kind());
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(engine::FindKernel(kind()) != nullptr, op->role == program::Role::kKernel);
}

TEST_P(OpTablesTest, HasATilePlan) {
  const model::PlanDef* plan = model::FindPlan(kind());
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->plan, nullptr);
}

TEST_P(OpTablesTest, HasAGradientOrAReasonForHavingNone) {
  const graph::GradientDef* gradient = graph::FindGradient(kind());
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(
      (gradient->add != nullptr) + (gradient->none != nullptr) + (gradient->missing != nullptr), 1);
  for (const char* why : {gradient->none, gradient->missing})
    EXPECT_TRUE(why == nullptr || *why != '\0');
}

TEST(OpTables, HaveNoRowForNoOp) {
  EXPECT_EQ(program::FindOp(Instruction::ATTRIBUTES_NOT_SET), nullptr);
  EXPECT_EQ(engine::FindKernel(Instruction::ATTRIBUTES_NOT_SET), nullptr);
  EXPECT_EQ(model::FindPlan(Instruction::ATTRIBUTES_NOT_SET), nullptr);
  EXPECT_EQ(graph::FindGradient(Instruction::ATTRIBUTES_NOT_SET), nullptr);
  EXPECT_EQ(program::OpName(Instruction::ATTRIBUTES_NOT_SET), "unknown");
}

}  // namespace
}  // namespace vpod
