#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kAxis{"gather_c1", "The axis is one of the dimensions of input 0."};
constexpr Constraint kIndices{"gather_c2", "The indices are int32."};
constexpr Constraint kAlong{
    "gather_c3", "With `along`, the indices have the shape of input 0 but along the axis."};
constexpr Constraint kUpdate{"gather_c4",
                             "The update has the type that a gather of the destination gives."};
constexpr Constraint kCombine{"gather_c5", "The way to combine is SET, ADD, MULTIPLY, MIN or MAX."};
constexpr Constraint kBool{"gather_c6", "Elements of type bool are SET, not combined."};
// Each result would be rounded several times.
constexpr Constraint kHalf{"gather_c7", "Elements of type float16 are not added or multiplied."};
constexpr Constraint kIotaAxis{"gather_c8", "The axis is one of the dimensions of the output."};
constexpr Constraint kIotaType{"gather_c9", "The output is int32 or float32."};

// The type of what indices choose from `whole`: see Gather in program.proto.
absl::StatusOr<TensorType> ChosenType(const TensorType& whole, const TensorType& indices,
                                      uint32_t axis, bool along) {
  VPOD_RETURN_IF_ERROR(Check(whole));
  VPOD_RETURN_IF_ERROR(Check(indices));
  if (axis >= whole.dims.size())
    return Broken(kAxis, absl::StrCat("axis ", axis, " does not exist in ", whole.ToString()));
  if (indices.type != v1::INT32)
    return Broken(kIndices,
                  absl::StrCat("the indices are ", indices.ToString(), ", must be int32"));
  TensorType chosen = whole;
  if (along) {
    if (indices.rank() == whole.rank()) chosen.dims[axis] = indices.dims[axis];
    if (indices.dims != chosen.dims) {
      return Broken(
          kAlong, absl::StrCat("the indices are ", indices.ToString(), ", must have the shape of ",
                               whole.ToString(), " but along axis ", axis));
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
  VPOD_RETURN_IF_ERROR(CheckInput(kUpdate, "update", inputs[2], chosen));
  if (op.combine() < v1::Scatter::SET || op.combine() > v1::Scatter::MAX)
    return Broken(kCombine, absl::StrCat("unknown way to combine ", op.combine()));
  const bool rounds = op.combine() == v1::Scatter::ADD || op.combine() == v1::Scatter::MULTIPLY;
  if (whole.type == v1::BOOL && op.combine() != v1::Scatter::SET)
    return Broken(kBool, absl::StrCat("cannot combine ", whole.ToString(), ", must be numbers"));
  if (whole.type == v1::FLOAT16 && rounds) {
    return Broken(kHalf, absl::StrCat("cannot add or multiply ", whole.ToString(),
                                      " one by one, must be float32 or integers"));
  }
  return whole;
}

absl::StatusOr<TensorType> IotaType(const v1::Iota& op) {
  TensorType output{op.type(), Dims(op.dims().begin(), op.dims().end())};
  VPOD_RETURN_IF_ERROR(Check(output));
  if (op.axis() >= output.dims.size())
    return Broken(kIotaAxis,
                  absl::StrCat("axis ", op.axis(), " does not exist in ", output.ToString()));
  if (op.type() != v1::INT32 && op.type() != v1::FLOAT32)
    return Broken(kIotaType, absl::StrCat("iota does not make ", output.ToString(),
                                          ", must be int32 or float32"));
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
       .constraints = {kAxis, kIndices, kAlong},
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kScatter,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(ScatteredType(instruction.scatter(), inputs));
       },
       .constraints = {kAxis, kIndices, kAlong, kUpdate, kCombine, kBool, kHalf},
       .updates = true},
      {.kind = v1::Instruction::kIota,
       .role = Role::kKernel,
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType>)
           -> absl::StatusOr<Types> { return OneOutput(IotaType(instruction.iota())); },
       .constraints = {kIotaAxis, kIotaType},
       .flops_per_operation = 0},
  };
}

}  // namespace vpod::program
