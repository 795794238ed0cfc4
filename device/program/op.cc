#include "device/program/op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op_rows.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

absl::Status CheckNumber(OpKind kind, const char* what, int number, const Arity& arity) {
  if (number >= arity.least && number <= arity.most) return absl::OkStatus();
  const std::string range =
      arity.most == kAnyNumber ? absl::StrCat("at least ", arity.least)
      : arity.least == arity.most
          ? absl::StrCat(arity.most)
          : absl::StrCat(arity.least, arity.most == arity.least + 1 ? " or " : " to ", arity.most);
  const int last = arity.most == kAnyNumber ? arity.least : arity.most;
  return absl::InvalidArgumentError(absl::StrCat(OpName(kind), " takes ", range, " ", what,
                                                 last == 1 ? "" : "s", ", not ", number));
}

// Whether the indices are tensors; their types where they are to be plain.
absl::StatusOr<Types> PlainTypes(const google::protobuf::RepeatedField<uint32_t>& indices,
                                 const Operands& tensors) {
  Types types;
  for (uint32_t index : indices) {
    VPOD_ASSIGN_OR_RETURN(TensorType type, tensors.Plain(index));
    types.push_back(std::move(type));
  }
  return types;
}

absl::Status CheckTypes(const OpDef& op, const v1::Instruction& instruction,
                        const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const Types inputs, PlainTypes(instruction.inputs(), tensors));
  VPOD_ASSIGN_OR_RETURN(const Types outputs, op.infer(instruction, inputs));
  const auto number = static_cast<int>(outputs.size());
  VPOD_RETURN_IF_ERROR(
      CheckNumber(op.kind, "output", instruction.outputs_size(), {number, number}));
  for (int i = 0; i < number; ++i)
    VPOD_RETURN_IF_ERROR(tensors.Expect(instruction.outputs(i), outputs[static_cast<size_t>(i)]));
  return absl::OkStatus();
}

absl::Status CheckOperations(const OpDef& op, const v1::Instruction& instruction,
                             const Operands& tensors) {
  if (op.operations == nullptr) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const Types inputs, PlainTypes(instruction.inputs(), tensors));
  VPOD_ASSIGN_OR_RETURN(const Types outputs, PlainTypes(instruction.outputs(), tensors));
  const double operations = op.operations(instruction, inputs, outputs);
  const uint64_t limit = tensors.limits().operations_per_instruction;
  if (operations <= static_cast<double>(limit)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the instruction has ", operations,
                                                 " operations, at most ", limit, " are accepted"));
}

absl::Status CheckLayout(const OpDef& op, const v1::Instruction& instruction, OperandPlace operand,
                         const Operands& tensors) {
  const uint32_t index =
      operand.output ? instruction.outputs(operand.position) : instruction.inputs(operand.position);
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, tensors.Any(index));
  const Layout layout = op.layout == nullptr ? Layout::kRowMajor : op.layout(instruction, operand);
  const Dims dims(tensor->dims().begin(), tensor->dims().end());
  const char* needed = nullptr;
  if (layout != Layout::kStrided && tensor->offset() % 64 != 0) {
    needed = "at a multiple of 64 bytes";
  } else if (layout == Layout::kRowMajor && !LiesAs(*tensor, RowMajorStrides(dims))) {
    needed = "row-major";
  } else if (layout == Layout::kChannelsLast && !LiesAs(*tensor, ChannelsLastStrides(dims))) {
    needed = "densely packed with the channels innermost";
  } else if (layout == Layout::kDense && !IsDense(*tensor)) {
    needed = "densely packed";
  } else if (operand.output && !ElementsLieApart(*tensor)) {
    needed = "without elements that lie on each other";
  }
  if (needed == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", index, ", ", operand.output ? "output " : "input ", operand.position,
                   " of ", OpName(op.kind), ", must be ", needed));
}

bool LieAlike(const v1::Tensor& a, const v1::Tensor& b) {
  return a.offset() == b.offset() && TypeOf(a).dims == TypeOf(b).dims &&
         SizeOf(a.type()) == SizeOf(b.type()) && StridesOf(a) == StridesOf(b);
}

// No chunk of a kernel reads what another one writes: outputs share bytes with other operands only
// where each element is written from those at its place.
absl::Status CheckPlaces(const OpDef& op, const v1::Instruction& instruction,
                         const Operands& tensors) {
  if (op.role != Role::kKernel) return absl::OkStatus();
  const auto may_share = [&](int output, int input) {
    return op.elementwise || instruction.has_map() || (op.updates && output == 0 && input == 0) ||
           std::any_of(op.in_place.begin(), op.in_place.end(), [&](const InPlace& pair) {
             return pair.output == output && pair.input == input;
           });
  };
  for (int o = 0; o < instruction.outputs_size(); ++o) {
    const v1::Tensor& output = **tensors.Any(instruction.outputs(o));
    const auto lies_apart = [&](const v1::Tensor& other) {
      return OutputsLieApart({RangeOf(output, true), RangeOf(other, false)});
    };
    for (int i = 0; i < instruction.inputs_size(); ++i) {
      const v1::Tensor& input = **tensors.Any(instruction.inputs(i));
      if (lies_apart(input) || (may_share(o, i) && LieAlike(output, input))) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("output ", o, " of ", OpName(op.kind), " shares bytes with its input ", i));
    }
    for (int other = 0; other < o; ++other) {
      if (lies_apart(**tensors.Any(instruction.outputs(other)))) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("outputs ", other, " and ", o, " of ", OpName(op.kind), " share bytes"));
    }
  }
  return absl::OkStatus();
}

// InvalidArgument if an output shares bytes with a tensor, which is called `name` in the message.
absl::Status CheckOutputsApart(const v1::Instruction& instruction, const Operands& tensors,
                               uint32_t tensor, const std::string& name) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* read, tensors.Any(tensor));
  for (int i = 0; i < instruction.outputs_size(); ++i) {
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* output, tensors.Any(instruction.outputs(i)));
    if (OutputsLieApart({RangeOf(*output, true), RangeOf(*read, false)})) continue;
    return absl::InvalidArgumentError(absl::StrCat("output ", i, " shares bytes with ", name));
  }
  return absl::OkStatus();
}

absl::Status CheckRounding(const OpDef& op, const v1::Instruction& instruction,
                           const Operands& tensors) {
  if (!instruction.has_rounding()) return absl::OkStatus();
  if (!op.rounds) {
    return absl::InvalidArgumentError(
        absl::StrCat("rounding is not for ", OpName(op.kind), ", which rounds nothing"));
  }
  VPOD_ASSIGN_OR_RETURN(const Types outputs, PlainTypes(instruction.outputs(), tensors));
  const bool half = std::any_of(outputs.begin(), outputs.end(), [](const TensorType& output) {
    return output.type == v1::FLOAT16;
  });
  if (!half) return absl::InvalidArgumentError("rounding is given, but there is no float16 output");
  const auto check = [&](const char* name, uint32_t index, const TensorType& type) -> absl::Status {
    absl::Status status = tensors.Expect(index, type);
    if (status.ok() && (*tensors.Any(index))->strides_size() > 0)
      status = absl::InvalidArgumentError(absl::StrCat("tensor ", index, " must be row-major"));
    if (status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat("the rounding's ", name, ": ", status.message()));
  };
  const uint32_t seed = instruction.rounding().seed(), counter = instruction.rounding().counter();
  VPOD_RETURN_IF_ERROR(check("seed", seed, {v1::UINT32, {2}}));
  VPOD_RETURN_IF_ERROR(check("counter", counter, {v1::UINT32, {}}));
  VPOD_RETURN_IF_ERROR(CheckOutputsApart(instruction, tensors, seed, "the rounding's seed"));
  return CheckOutputsApart(instruction, tensors, counter, "the rounding's counter");
}

}  // namespace

Layout AnyLayout(const v1::Instruction&, OperandPlace) { return Layout::kStrided; }

const OpDef* FindOp(OpKind kind) {
  static const auto* const table = new OpRows<OpDef>{
      BatchNormOps,   CollectiveOps, ControlOps,   ConvolutionOps, DataMovementOps,
      ElementwiseOps, GatherOps,     LayerNormOps, LineOps,        LossOps,
      MapOps,         MatMulOps,     OptimizerOps, PoolingOps,     RandomOps,
      ReduceOps,      SoftmaxOps,    TransferOps,  ViewOps};
  return table->Find(kind);
}

const std::string& OpName(OpKind kind) {
  static const auto* const none = new std::string("unknown");
  const auto* oneof = v1::Instruction::descriptor()->FindOneofByName("attributes");
  const auto* field = v1::Instruction::descriptor()->FindFieldByNumber(kind);
  return field == nullptr || field->containing_oneof() != oneof ? *none : field->name();
}

absl::Status Broken(const Constraint& constraint, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(message, " (", constraint.label, ")"));
}

absl::Status Labelled(const Constraint& constraint, const absl::Status& status) {
  return status.ok() ? status : Broken(constraint, status.message());
}

absl::Status CheckInput(const Constraint& constraint, const char* name, const TensorType& actual,
                        const TensorType& expected) {
  if (actual == expected) return absl::OkStatus();
  return Broken(constraint, absl::StrCat("the ", name, " is ", actual.ToString(), ", must be ",
                                         expected.ToString()));
}

absl::StatusOr<Types> OneOutput(absl::StatusOr<TensorType> output) {
  if (!output.ok()) return output.status();
  return Types{*std::move(output)};
}

absl::StatusOr<Types> InferTypes(const v1::Instruction& instruction,
                                 absl::Span<const TensorType> inputs) {
  const OpDef* op = FindOp(instruction.attributes_case());
  if (op == nullptr || op->infer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the outputs of ",
                                                   OpName(instruction.attributes_case()),
                                                   " do not follow from its inputs"));
  }
  VPOD_RETURN_IF_ERROR(CheckNumber(op->kind, "input", static_cast<int>(inputs.size()), op->inputs));
  for (const TensorType& input : inputs) VPOD_RETURN_IF_ERROR(Check(input));
  return op->infer(instruction, inputs);
}

absl::Status CheckInstruction(const v1::Instruction& instruction, const Operands& tensors) {
  const OpDef* op = FindOp(instruction.attributes_case());
  if (op == nullptr) return absl::InvalidArgumentError("unknown instruction");
  VPOD_RETURN_IF_ERROR(CheckNumber(op->kind, "input", instruction.inputs_size(), op->inputs));
  VPOD_RETURN_IF_ERROR(CheckNumber(op->kind, "output", instruction.outputs_size(), op->outputs));
  for (uint32_t index : instruction.inputs()) VPOD_RETURN_IF_ERROR(tensors.Any(index).status());
  for (uint32_t index : instruction.outputs()) VPOD_RETURN_IF_ERROR(tensors.Any(index).status());
  for (int i = 0; i < instruction.inputs_size(); ++i)
    VPOD_RETURN_IF_ERROR(CheckLayout(*op, instruction, {false, i}, tensors));
  for (int i = 0; i < instruction.outputs_size(); ++i)
    VPOD_RETURN_IF_ERROR(CheckLayout(*op, instruction, {true, i}, tensors));
  for (const InPlace& pair : op->in_place) {
    if (pair.output < instruction.outputs_size() && pair.input < instruction.inputs_size() &&
        instruction.outputs(pair.output) != instruction.inputs(pair.input)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "output ", pair.output, " of ", OpName(op->kind), " must be its input ", pair.input));
    }
  }
  if (op->infer != nullptr) VPOD_RETURN_IF_ERROR(CheckTypes(*op, instruction, tensors));
  if (op->check != nullptr) VPOD_RETURN_IF_ERROR(op->check(instruction, tensors));
  VPOD_RETURN_IF_ERROR(CheckPlaces(*op, instruction, tensors));
  VPOD_RETURN_IF_ERROR(CheckRounding(*op, instruction, tensors));
  return CheckOperations(*op, instruction, tensors);
}

double Flops(const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
             absl::Span<const TensorType> outputs) {
  const OpDef& op = *FindOp(instruction.attributes_case());
  double largest = 0;
  bool floats = false;
  for (const auto& operands : {inputs, outputs}) {
    for (const TensorType& type : operands) {
      largest = std::max(largest, static_cast<double>(type.elements()));
      floats = floats || IsFloat(type.type);
    }
  }
  if (op.role != Role::kKernel || !floats) return 0;
  const double operations =
      op.operations == nullptr ? largest : op.operations(instruction, inputs, outputs);
  return operations * op.flops_per_operation;
}

Operands::Operands(const v1::Executable& executable, uint32_t ipu, const Limits& limits)
    : executable_(executable), ipu_(ipu), limits_(limits) {
  for (const v1::Exchange& exchange : executable.exchanges()) {
    Exchanged& part = exchanges_.emplace_back();
    for (const v1::Move& move : exchange.moves()) {
      if (move.from_ipu() == ipu) part.sent.push_back(move.from_tensor());
      if (move.to_ipu() == ipu) part.received.push_back(move.to_tensor());
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

ArenaRange RangeOf(const v1::Tensor& tensor, bool output) {
  return {tensor.offset(), tensor.offset() + ArenaBytes(tensor), output};
}

bool OutputsLieApart(std::vector<ArenaRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ArenaRange& a, const ArenaRange& b) { return a.begin < b.begin; });
  uint64_t inputs_end = 0, outputs_end = 0;
  for (const ArenaRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (range.begin < outputs_end || (range.output && range.begin < inputs_end)) return false;
    uint64_t& end = range.output ? outputs_end : inputs_end;
    end = std::max(end, range.end);
  }
  return true;
}

}  // namespace vpod::program
