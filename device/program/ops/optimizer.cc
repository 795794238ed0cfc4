#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status CheckAccumulate(const v1::Instruction& instruction, const Operands& tensors) {
  const v1::Accumulate& op = instruction.accumulate();
  VPOD_ASSIGN_OR_RETURN(TensorType gradient, tensors.Plain(op.gradient()));
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* accumulator, tensors.Any(op.accumulator()));
  if (accumulator->wide_accumulator() && IsFloat(gradient.type) &&
      TypeOf(*accumulator).dims == gradient.dims)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", op.accumulator(), " is not a wide accumulator for ", gradient.ToString()));
}

absl::Status CheckSgd(const v1::Instruction& instruction, const Operands& tensors) {
  const v1::Sgd& op = instruction.sgd();
  VPOD_ASSIGN_OR_RETURN(TensorType weights, tensors.Plain(op.weights()));
  if (!IsFloat(weights.type)) {
    return absl::InvalidArgumentError(absl::StrCat("SGD does not update ", weights.ToString()));
  }
  VPOD_RETURN_IF_ERROR(tensors.Expect(op.gradient(), weights));
  VPOD_RETURN_IF_ERROR(tensors.Expect(op.learning_rate(), {v1::FLOAT32, {}}));
  if (op.has_velocity()) return tensors.Expect(op.velocity(), weights);
  if (op.momentum() != 0) return absl::InvalidArgumentError("momentum needs a velocity");
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> OptimizerOps() {
  return {
      {v1::Instruction::kAccumulate,
       Role::kKernel,
       {{"gradient", Access::kRead}, {"accumulator", Access::kUpdate}},
       CheckAccumulate},
      {v1::Instruction::kSgd,
       Role::kKernel,
       {{"weights", Access::kUpdate},
        {"gradient", Access::kRead},
        {"learning_rate", Access::kRead},
        {"velocity", Access::kUpdate, "has_velocity"}},
       CheckSgd},
  };
}

}  // namespace vpod::program
