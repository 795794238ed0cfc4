#include "device/program/op.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op_rows.h"

namespace vpod::program {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The fields of a row that hold tensors, found once.
struct TensorField {
  const FieldDescriptor* field;
  const FieldDescriptor* present;  // null: always
  Access access;
};

const FieldDescriptor* StepField(v1::Instruction::StepCase kind) {
  return v1::Instruction::descriptor()->FindFieldByNumber(kind);
}

// By kind.
std::vector<std::vector<TensorField>> FindTensorFields() {
  std::vector<std::vector<TensorField>> all;
  const auto* step = v1::Instruction::descriptor()->FindOneofByName("step");
  for (int i = 0; i < step->field_count(); ++i) {
    const auto kind = static_cast<v1::Instruction::StepCase>(step->field(i)->number());
    if (kind >= static_cast<int>(all.size())) all.resize(kind + 1);
    const auto* message = step->field(i)->message_type();
    for (const Operand& operand : FindOp(kind)->operands) {
      const auto* present =
          operand.present == nullptr ? nullptr : message->FindFieldByName(operand.present);
      all[kind].push_back({message->FindFieldByName(operand.field), present, operand.access});
    }
  }
  return all;
}

const std::vector<TensorField>& TensorFields(v1::Instruction::StepCase kind) {
  static const auto* const all = new auto(FindTensorFields());
  return (*all)[static_cast<size_t>(kind)];
}

}  // namespace

const OpDef* FindOp(v1::Instruction::StepCase kind) {
  static const auto* const table = new OpRows<OpDef>{
      CollectiveOps, ControlOps,   Conv2dOps, DataMovementOps, ElementwiseOps, LossOps,
      MatMulOps,     OptimizerOps, PoolOps,   ReduceOps,       TransferOps};
  return table->Find(kind);
}

const std::string& OpName(v1::Instruction::StepCase kind) {
  static const auto* const none = new std::string("unknown");
  const FieldDescriptor* field = StepField(kind);
  return field == nullptr ? *none : field->name();
}

void ForEachTensor(const v1::Instruction& instruction,
                   const std::function<void(uint32_t, Access)>& visit) {
  const FieldDescriptor* step = StepField(instruction.step_case());
  if (step == nullptr) return;
  const Message& op = instruction.GetReflection()->GetMessage(instruction, step);
  const Reflection& reflection = *op.GetReflection();
  for (const TensorField& each : TensorFields(instruction.step_case())) {
    if (each.present != nullptr && !reflection.GetBool(op, each.present)) continue;
    if (!each.field->is_repeated()) {
      visit(reflection.GetUInt32(op, each.field), each.access);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(op, each.field); ++i)
      visit(reflection.GetRepeatedUInt32(op, each.field, i), each.access);
  }
}

void RenumberTensors(v1::Instruction& instruction,
                     const std::function<uint32_t(uint32_t, Access)>& renumber) {
  const FieldDescriptor* step = StepField(instruction.step_case());
  if (step == nullptr) return;
  Message& op = *instruction.GetReflection()->MutableMessage(&instruction, step);
  const Reflection& reflection = *op.GetReflection();
  for (const TensorField& each : TensorFields(instruction.step_case())) {
    if (each.present != nullptr && !reflection.GetBool(op, each.present)) continue;
    if (!each.field->is_repeated()) {
      reflection.SetUInt32(&op, each.field,
                           renumber(reflection.GetUInt32(op, each.field), each.access));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(op, each.field); ++i) {
      reflection.SetRepeatedUInt32(
          &op, each.field, i,
          renumber(reflection.GetRepeatedUInt32(op, each.field, i), each.access));
    }
  }
}

absl::StatusOr<const v1::Tensor*> Operands::Any(uint32_t index) const {
  const auto& tensors = executable_.ipus(static_cast<int>(ipu_)).tensors();
  if (index >= static_cast<uint32_t>(tensors.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", index, " does not exist (there are ", tensors.size(), ")"));
  }
  return &tensors[static_cast<int>(index)];
}

absl::StatusOr<TensorType> Operands::Plain(uint32_t index) const {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, Any(index));
  if (tensor->wide_accumulator()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", index, " is a wide accumulator"));
  }
  return TypeOf(*tensor);
}

absl::Status Operands::Expect(uint32_t index, const TensorType& expected) const {
  VPOD_ASSIGN_OR_RETURN(const TensorType actual, Plain(index));
  if (actual == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", index, " is ", actual.ToString(), ", must be ", expected.ToString()));
}

absl::Status Operands::CheckOperations(int64_t results, std::initializer_list<int64_t> each) const {
  double operations = static_cast<double>(results);
  for (int64_t factor : each) operations *= static_cast<double>(factor);
  if (operations <= static_cast<double>(limits_.operations_per_instruction))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the instruction has ", operations, " operations, at most ",
                   limits_.operations_per_instruction, " are accepted"));
}

}  // namespace vpod::program
