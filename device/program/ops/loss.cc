#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {

absl::StatusOr<TensorType> SoftmaxCrossEntropyType(const TensorType& logits,
                                                   const TensorType& labels) {
  VPOD_RETURN_IF_ERROR(Check(logits));
  VPOD_RETURN_IF_ERROR(Check(labels));
  if (logits.rank() != 2 || !IsFloat(logits.type) || labels.type != v1::INT32 ||
      labels.dims != Dims{logits.dims[0]}) {
    return absl::InvalidArgumentError(absl::StrCat("cross-entropy does not take logits ",
                                                   logits.ToString(), " and labels ",
                                                   labels.ToString()));
  }
  return TensorType{logits.type, labels.dims};
}

std::vector<OpDef> LossOps() {
  return {
      {v1::Instruction::kSoftmaxCrossEntropy,
       Role::kKernel,
       {{"logits", Access::kRead},
        {"labels", Access::kRead},
        {"loss", Access::kWrite},
        {"probabilities", Access::kWrite}},
       [](const v1::Instruction& instruction, const Operands& tensors) -> absl::Status {
         const v1::SoftmaxCrossEntropy& op = instruction.softmax_cross_entropy();
         VPOD_ASSIGN_OR_RETURN(TensorType logits, tensors.Plain(op.logits()));
         VPOD_ASSIGN_OR_RETURN(TensorType labels, tensors.Plain(op.labels()));
         VPOD_ASSIGN_OR_RETURN(TensorType loss, SoftmaxCrossEntropyType(logits, labels));
         VPOD_RETURN_IF_ERROR(tensors.Expect(op.loss(), loss));
         return tensors.Expect(op.probabilities(), logits);
       }},
      {v1::Instruction::kSoftmaxCrossEntropyGradient,
       Role::kKernel,
       {{"probabilities", Access::kRead},
        {"labels", Access::kRead},
        {"loss_gradient", Access::kRead},
        {"logits_gradient", Access::kWrite}},
       [](const v1::Instruction& instruction, const Operands& tensors) -> absl::Status {
         const v1::SoftmaxCrossEntropyGradient& op = instruction.softmax_cross_entropy_gradient();
         VPOD_ASSIGN_OR_RETURN(TensorType probabilities, tensors.Plain(op.probabilities()));
         VPOD_ASSIGN_OR_RETURN(TensorType labels, tensors.Plain(op.labels()));
         VPOD_ASSIGN_OR_RETURN(TensorType loss, SoftmaxCrossEntropyType(probabilities, labels));
         VPOD_RETURN_IF_ERROR(tensors.Expect(op.loss_gradient(), loss));
         return tensors.Expect(op.logits_gradient(), probabilities);
       }},
  };
}

}  // namespace vpod::program
