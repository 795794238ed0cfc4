#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kSmoothing{"loss_c1", "Label smoothing is 0 to 1."};
constexpr Constraint kRows{
    "loss_c2",
    "Logits or probabilities are floats [rows, classes] with one class or more, and the labels are "
    "int32 [rows]."};
constexpr Constraint kGradient{
    "loss_c3", "The loss gradient has the element type of the probabilities and is [rows]."};

}  // namespace

absl::StatusOr<TensorType> SoftmaxCrossEntropyType(const TensorType& logits,
                                                   const TensorType& labels) {
  VPOD_RETURN_IF_ERROR(Check(logits));
  VPOD_RETURN_IF_ERROR(Check(labels));
  if (logits.rank() != 2 || !IsFloat(logits.type) || labels.type != v1::INT32 ||
      labels.dims != Dims{logits.dims[0]}) {
    return Broken(kRows, absl::StrCat("cross-entropy does not take logits ", logits.ToString(),
                                      " and labels ", labels.ToString(),
                                      ", must be floats [rows, classes] and int32 [rows]"));
  }
  if (logits.dims[1] == 0) {
    return Broken(kRows,
                  absl::StrCat("the logits are ", logits.ToString(), " and have no classes"));
  }
  return TensorType{logits.type, labels.dims};
}

namespace {

template <class CrossEntropy>
absl::Status CheckSmoothing(const CrossEntropy& op) {
  if (op.label_smoothing() >= 0 && op.label_smoothing() <= 1) return absl::OkStatus();
  return Broken(kSmoothing,
                absl::StrCat("label smoothing of ", op.label_smoothing(), " is outside 0 to 1"));
}

}  // namespace

std::vector<OpDef> LossOps() {
  return {
      {.kind = v1::Instruction::kSoftmaxCrossEntropy,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {2, 2},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckSmoothing(instruction.softmax_cross_entropy()));
         VPOD_ASSIGN_OR_RETURN(TensorType loss, SoftmaxCrossEntropyType(inputs[0], inputs[1]));
         return Types{std::move(loss), inputs[0]};
       },
       .constraints = {kSmoothing, kRows},
       .rounds = true},
      {.kind = v1::Instruction::kSoftmaxCrossEntropyGradient,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckSmoothing(instruction.softmax_cross_entropy_gradient()));
         VPOD_ASSIGN_OR_RETURN(TensorType loss, SoftmaxCrossEntropyType(inputs[0], inputs[1]));
         VPOD_RETURN_IF_ERROR(CheckInput(kGradient, "loss gradient", inputs[2], loss));
         return Types{inputs[0]};
       },
       .constraints = {kSmoothing, kRows, kGradient},
       .rounds = true},
  };
}

}  // namespace vpod::program
