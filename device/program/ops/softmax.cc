#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kRows{"softmax_c1", "Input 0 is floats with a last dimension above 0."};
constexpr Constraint kGradient{"softmax_c2", "The output gradient has the type of the output."};

absl::StatusOr<TensorType> RowsType(const TensorType& input) {
  VPOD_RETURN_IF_ERROR(Check(input));
  if (input.rank() >= 1 && IsFloat(input.type) && input.dims.back() > 0) return input;
  return Broken(kRows, absl::StrCat("softmax does not take ", input.ToString(),
                                    ", must be floats with a last dimension above 0"));
}

}  // namespace

std::vector<OpDef> SoftmaxOps() {
  return {
      {.kind = v1::Instruction::kSoftmax,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return OneOutput(RowsType(inputs[0])); },
       .constraints = {kRows},
       .flops_per_operation = 4,
       .updates = true,
       .rounds = true},
      {.kind = v1::Instruction::kSoftmaxGradient,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(TensorType type, RowsType(inputs[0]));
         VPOD_RETURN_IF_ERROR(CheckInput(kGradient, "output gradient", inputs[1], type));
         return Types{std::move(type)};
       },
       .constraints = {kRows, kGradient},
       .flops_per_operation = 4,
       .updates = true,
       .rounds = true},
  };
}

}  // namespace vpod::program
