// Walks the op tables: every op that an instruction may hold has a row in each room that has to
// know it.
#include <gtest/gtest.h>

#include <string>

#include "client/graph/gradients/gradients.h"
#include "device/engine/kernels/kernel.h"
#include "device/model/op_prices.h"
#include "device/program/op.h"

namespace vpod {
namespace {

using google::protobuf::FieldDescriptor;
using program::v1::Instruction;

class OpTablesTest : public testing::TestWithParam<const FieldDescriptor*> {
 protected:
  const FieldDescriptor& field() const { return *GetParam(); }
  Instruction::StepCase kind() const {
    return static_cast<Instruction::StepCase>(field().number());
  }
};

std::vector<const FieldDescriptor*> Steps() {
  const auto* oneof = Instruction::descriptor()->FindOneofByName("step");
  std::vector<const FieldDescriptor*> steps;
  for (int i = 0; i < oneof->field_count(); ++i) steps.push_back(oneof->field(i));
  return steps;
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTablesTest, testing::ValuesIn(Steps()),
                         [](const auto& info) { return info.param->name(); });

TEST_P(OpTablesTest, HasATypeRuleAndItsOperands) {
  const program::OpDef* op = program::FindOp(kind());
  ASSERT_NE(op, nullptr);
  EXPECT_NE(op->check, nullptr);
  EXPECT_EQ(program::OpName(kind()), field().name());
  for (const program::Operand& operand : op->operands) {
    const FieldDescriptor* tensor = field().message_type()->FindFieldByName(operand.field);
    ASSERT_NE(tensor, nullptr) << operand.field;
    EXPECT_EQ(tensor->cpp_type(), FieldDescriptor::CPPTYPE_UINT32) << operand.field;
    if (operand.present == nullptr) continue;
    const FieldDescriptor* present = field().message_type()->FindFieldByName(operand.present);
    ASSERT_NE(present, nullptr) << operand.present;
    EXPECT_EQ(present->cpp_type(), FieldDescriptor::CPPTYPE_BOOL) << operand.present;
  }
  // Only control has none.
  EXPECT_EQ(op->operands.empty(), op->role == program::Role::kControl);
}

TEST_P(OpTablesTest, HasAKernelIfThatIsItsRole) {
  const program::OpDef* op = program::FindOp(kind());
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(engine::FindKernel(kind()) != nullptr, op->role == program::Role::kKernel);
}

TEST_P(OpTablesTest, HasAPrice) {
  const model::PriceDef* price = model::FindPrice(kind());
  ASSERT_NE(price, nullptr);
  EXPECT_NE(price->price, nullptr);
  EXPECT_GT(price->vertex_code_bytes, 0u);
}

TEST_P(OpTablesTest, HasAGradientOrAReasonForHavingNone) {
  const graph::GradientDef* gradient = graph::FindGradient(kind());
  ASSERT_NE(gradient, nullptr);
  EXPECT_NE(gradient->add != nullptr, gradient->none != nullptr);
  EXPECT_TRUE(gradient->none == nullptr || *gradient->none != '\0');
}

TEST(OpTables, HaveNoRowForNoOp) {
  EXPECT_EQ(program::FindOp(Instruction::STEP_NOT_SET), nullptr);
  EXPECT_EQ(engine::FindKernel(Instruction::STEP_NOT_SET), nullptr);
  EXPECT_EQ(model::FindPrice(Instruction::STEP_NOT_SET), nullptr);
  EXPECT_EQ(graph::FindGradient(Instruction::STEP_NOT_SET), nullptr);
  EXPECT_EQ(program::OpName(Instruction::STEP_NOT_SET), "unknown");
}

// An optional tensor is visited if it is there, one that is updated once.
TEST(OpTables, TensorsAreVisitedWithTheirAccess) {
  Instruction instruction;
  auto* sgd = instruction.mutable_sgd();
  sgd->set_weights(1);
  sgd->set_gradient(2);
  sgd->set_learning_rate(3);
  sgd->set_velocity(4);
  const auto visited = [&] {
    std::vector<std::pair<uint32_t, program::Access>> tensors;
    program::ForEachTensor(instruction, [&](uint32_t tensor, program::Access access) {
      tensors.emplace_back(tensor, access);
    });
    return tensors;
  };
  using program::Access;
  std::vector<std::pair<uint32_t, Access>> expected = {
      {1, Access::kUpdate}, {2, Access::kRead}, {3, Access::kRead}};
  EXPECT_EQ(visited(), expected);
  sgd->set_has_velocity(true);
  expected.emplace_back(4, Access::kUpdate);
  EXPECT_EQ(visited(), expected);
  program::RenumberTensors(instruction, [](uint32_t tensor, Access) { return tensor + 10; });
  EXPECT_EQ(sgd->weights(), 11u);
  EXPECT_EQ(sgd->velocity(), 14u);

  Instruction gather;
  gather.mutable_all_gather()->add_inputs(5);
  gather.mutable_all_gather()->add_outputs(6);
  program::RenumberTensors(gather, [](uint32_t tensor, Access access) {
    return program::Writes(access) ? tensor + 1 : tensor - 1;
  });
  EXPECT_EQ(gather.all_gather().inputs(0), 4u);
  EXPECT_EQ(gather.all_gather().outputs(0), 7u);
}

}  // namespace
}  // namespace vpod
