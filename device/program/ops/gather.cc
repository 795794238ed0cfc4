#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// The type of what indices choose from `whole`: see Gather in program.proto.
absl::StatusOr<TensorType> ChosenType(const TensorType& whole, const TensorType& indices,
                                      uint32_t axis, bool along) {
  VPOD_RETURN_IF_ERROR(Check(whole));
  VPOD_RETURN_IF_ERROR(Check(indices));
  if (axis >= whole.dims.size()) {
    return Invalid(absl::StrCat("axis ", axis, " does not exist in ", whole.ToString()));
  }
  if (indices.type != v1::INT32)
    return Invalid(absl::StrCat("the indices are ", indices.ToString(), ", must be int32"));
  TensorType chosen = whole;
  if (along) {
    if (indices.rank() == whole.rank()) chosen.dims[axis] = indices.dims[axis];
    if (indices.dims != chosen.dims) {
      return Invalid(absl::StrCat("the indices are ", indices.ToString(),
                                  ", must have the shape of ", whole.ToString(), " but along axis ",
                                  axis));
    }
    return chosen;
  }
  const auto place = chosen.dims.erase(chosen.dims.begin() + axis);
  chosen.dims.insert(place, indices.dims.begin(), indices.dims.end());
  VPOD_RETURN_IF_ERROR(Check(chosen));
  return chosen;
}

absl::StatusOr<TensorType> ScatteredType(const v1::Scatter& op,
                                         absl::Span<const TensorType> inputs) {
  const TensorType& whole = inputs[0];
  VPOD_ASSIGN_OR_RETURN(const TensorType chosen,
                        ChosenType(whole, inputs[1], op.axis(), op.along()));
  VPOD_RETURN_IF_ERROR(CheckInput("update", inputs[2], chosen));
  if (op.combine() < v1::Scatter::SET || op.combine() > v1::Scatter::MAX)
    return Invalid(absl::StrCat("unknown way to combine ", op.combine()));
  // Each result would be rounded several times.
  const bool rounds = op.combine() == v1::Scatter::ADD || op.combine() == v1::Scatter::MULTIPLY;
  if (whole.type == v1::BOOL && op.combine() != v1::Scatter::SET)
    return Invalid(absl::StrCat("cannot combine ", whole.ToString(), ", must be numbers"));
  if (whole.type == v1::FLOAT16 && rounds) {
    return Invalid(absl::StrCat("cannot add or multiply ", whole.ToString(),
                                " one by one, must be float32 or integers"));
  }
  return whole;
}

absl::StatusOr<TensorType> IotaType(const v1::Iota& op) {
  TensorType output{op.type(), Dims(op.dims().begin(), op.dims().end())};
  VPOD_RETURN_IF_ERROR(Check(output));
  if (op.axis() >= output.dims.size())
    return Invalid(absl::StrCat("axis ", op.axis(), " does not exist in ", output.ToString()));
  if (op.type() != v1::INT32 && op.type() != v1::FLOAT32)
    return Invalid(
        absl::StrCat("iota does not make ", output.ToString(), ", must be int32 or float32"));
  return output;
}

}  // namespace

std::vector<OpDef> GatherOps() {
  return {
      {.kind = v1::Instruction::kGather,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         const v1::Gather& op = instruction.gather();
         return OneOutput(ChosenType(inputs[0], inputs[1], op.axis(), op.along()));
       },
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kScatter,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(ScatteredType(instruction.scatter(), inputs));
       },
       .updates = true},
      {.kind = v1::Instruction::kIota,
       .role = Role::kKernel,
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType>)
           -> absl::StatusOr<Types> { return OneOutput(IotaType(instruction.iota())); },
       .flops_per_operation = 0},
  };
}

}  // namespace vpod::program
