#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kValue{"data_movement_c1",
                            "The value is one that the tensor's element type has, which is any "
                            "for floats."};
constexpr Constraint kPadEntries{
    "data_movement_c2", "`before` and `after` have an entry for each dimension of the input."};
constexpr Constraint kPadding{"data_movement_c3", "Padding is 0 to 2^31 elements."};
constexpr Constraint kConcatAxis{"data_movement_c4",
                                 "The axis is one of the dimensions of the inputs."};
constexpr Constraint kPieces{"data_movement_c5",
                             "The inputs have one type but for the dimension of the axis."};
constexpr Constraint kAxes{
    "data_movement_c6",
    "The axes, one or more, are dimensions of input 0 in ascending order, without repetition."};
constexpr Constraint kStart{"data_movement_c7", "The start is int32 [axes]."};
constexpr Constraint kSizes{"data_movement_c8", "`size` has an entry for each of the axes."};
constexpr Constraint kPart{"data_movement_c9",
                           "Along each of the axes, the slice has 0 elements or more, at most "
                           "those of input 0."};
constexpr Constraint kUpdate{"data_movement_c10",
                             "The update has the type of the destination but for the dimensions of "
                             "the axes."};

constexpr Constraint kElements{"data_movement_c11",
                               "Elements have the bytes of the output, which may not be a wide "
                               "accumulator; bools are 0 or 1, and the value is 0."};

absl::Status CheckElements(const v1::Fill& fill, const v1::Tensor& output) {
  const uint64_t bytes = TypeOf(output).bytes();
  if (fill.elements().size() != bytes) {
    return Broken(kElements, absl::StrCat("the elements have ", fill.elements().size(),
                                          " bytes, the output ", bytes));
  }
  if (output.wide_accumulator()) return Broken(kElements, "a wide accumulator has no elements");
  if (fill.value() != 0) return Broken(kElements, "there is a value beside the elements");
  const bool is_bool = output.type() == v1::BOOL;
  if (is_bool && std::any_of(fill.elements().begin(), fill.elements().end(),
                             [](char byte) { return byte != 0 && byte != 1; }))
    return Broken(kElements, "a bool is neither 0 nor 1");
  return absl::OkStatus();
}

absl::Status CheckFill(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, tensors.Any(instruction.outputs(0)));
  if (!instruction.fill().elements().empty()) return CheckElements(instruction.fill(), *tensor);
  return Labelled(kValue, CheckValue(instruction.fill().value(), tensor->type()));
}

absl::StatusOr<TensorType> PaddedType(const v1::Pad& op, const TensorType& input) {
  VPOD_RETURN_IF_ERROR(Labelled(kValue, CheckValue(op.value(), input.type)));
  if (op.before_size() != input.rank() || op.after_size() != input.rank()) {
    return Broken(kPadEntries,
                  absl::StrCat("padding of ", input.ToString(), " needs ", input.rank(),
                               " entries before and after, one for each dimension"));
  }
  TensorType output = input;
  for (int i = 0; i < input.rank(); ++i) {
    for (int64_t padding : {op.before(i), op.after(i)}) {
      if (padding < 0 || padding > kMaxElements) {
        return Broken(kPadding,
                      absl::StrCat("padding ", padding, " is outside 0 to ", kMaxElements));
      }
      output.dims[static_cast<size_t>(i)] += padding;
    }
  }
  VPOD_RETURN_IF_ERROR(Check(output));
  return output;
}

absl::StatusOr<TensorType> ConcatenatedType(uint32_t axis, absl::Span<const TensorType> inputs) {
  TensorType output = inputs[0];
  if (axis >= output.dims.size()) {
    return Broken(kConcatAxis,
                  absl::StrCat(output.ToString(), " has no axis ", axis,
                               " to concatenate along, must be 0 to ", output.rank() - 1));
  }
  for (const TensorType& input : inputs.subspan(1)) {
    TensorType expected = inputs[0];
    if (axis < input.dims.size()) expected.dims[axis] = input.dims[axis];
    if (input != expected) {
      return Broken(kPieces, absl::StrCat(inputs[0].ToString(), " and ", input.ToString(),
                                          " do not concatenate along axis ", axis,
                                          ": all else must be equal"));
    }
    output.dims[axis] += input.dims[axis];
    VPOD_RETURN_IF_ERROR(Check(output));
  }
  return output;
}

using Axes = google::protobuf::RepeatedField<uint32_t>;

// The common part of ops on slices that begin at `start`.
absl::Status CheckDynamicAxes(const Axes& axes, const TensorType& sliced, const TensorType& start) {
  bool fits = !axes.empty();
  for (int i = 0; i < axes.size(); ++i)
    fits = fits && axes[i] < sliced.dims.size() && (i == 0 || axes[i] > axes[i - 1]);
  if (!fits) {
    return Broken(
        kAxes,
        absl::StrCat(
            "axes [", absl::StrJoin(axes, ","), "] of ", sliced.ToString(),
            " must exist and be in ascending order, without repetition, and there must be one"));
  }
  return CheckInput(kStart, "start", start, {v1::INT32, {axes.size()}});
}

absl::Status CheckDynamicSize(const TensorType& sliced, uint32_t axis, int64_t size) {
  const int64_t dim = sliced.dims[axis];
  if (size >= 0 && size <= dim) return absl::OkStatus();
  return Broken(kPart, absl::StrCat("a slice of ", size, " elements of axis ", axis, " of ",
                                    sliced.ToString(), " is outside 0 to ", dim));
}

absl::StatusOr<TensorType> DynamicSliceType(const v1::DynamicSlice& op, const TensorType& input,
                                            const TensorType& start) {
  VPOD_RETURN_IF_ERROR(CheckDynamicAxes(op.axes(), input, start));
  if (op.size_size() != op.axes_size()) {
    return Broken(
        kSizes, absl::StrCat("there are ", op.size_size(), " sizes for ", op.axes_size(), " axes"));
  }
  TensorType output = input;
  for (int i = 0; i < op.axes_size(); ++i) {
    VPOD_RETURN_IF_ERROR(CheckDynamicSize(input, op.axes(i), op.size(i)));
    output.dims[op.axes(i)] = op.size(i);
  }
  return output;
}

absl::StatusOr<TensorType> DynamicUpdateType(const v1::DynamicUpdate& op,
                                             absl::Span<const TensorType> inputs) {
  const TensorType &destination = inputs[0], &update = inputs[1];
  VPOD_RETURN_IF_ERROR(CheckDynamicAxes(op.axes(), destination, inputs[2]));
  TensorType expected = destination;
  for (uint32_t axis : op.axes()) {
    if (axis >= update.dims.size()) break;
    VPOD_RETURN_IF_ERROR(CheckDynamicSize(destination, axis, update.dims[axis]));
    expected.dims[axis] = update.dims[axis];
  }
  VPOD_RETURN_IF_ERROR(CheckInput(kUpdate, "update", update, expected));
  return destination;
}

// The start is row-major.
Layout DynamicLayout(const v1::Instruction& instruction, OperandPlace operand) {
  const bool start = !operand.output && operand.position == instruction.inputs_size() - 1;
  return start ? Layout::kRowMajor : Layout::kStrided;
}

}  // namespace

std::vector<OpDef> DataMovementOps() {
  return {
      {.kind = v1::Instruction::kFill,
       .role = Role::kKernel,
       .outputs = {1, 1},
       .check = CheckFill,
       .constraints = {kValue, kElements},
       .form = Form::kLowered,
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kCopy,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return Types{inputs[0]}; },
       .flops_per_operation = 0,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kPad,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return OneOutput(PaddedType(instruction.pad(), inputs[0])); },
       .constraints = {kValue, kPadEntries, kPadding},
       .flops_per_operation = 0,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kConcat,
       .role = Role::kKernel,
       .inputs = {1, kAnyNumber},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(ConcatenatedType(instruction.concat().axis(), inputs));
       },
       .constraints = {kConcatAxis, kPieces},
       .flops_per_operation = 0,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kDynamicSlice,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(DynamicSliceType(instruction.dynamic_slice(), inputs[0], inputs[1]));
       },
       .constraints = {kAxes, kStart, kSizes, kPart},
       .flops_per_operation = 0,
       .layout = DynamicLayout},
      {.kind = v1::Instruction::kDynamicUpdate,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(DynamicUpdateType(instruction.dynamic_update(), inputs));
       },
       .constraints = {kAxes, kStart, kPart, kUpdate},
       .flops_per_operation = 0,
       .updates = true,
       .layout = DynamicLayout},
  };
}

}  // namespace vpod::program
