#include "device/engine/kernels/kernel.h"

namespace vpod::engine {

absl::StatusOr<Kernel> PrepareKernel(const program::v1::Ipu& ipu,
                                     const program::v1::Instruction& instruction) {
  using program::v1::Instruction;
  switch (instruction.step_case()) {
    case Instruction::kFill:
      return PrepareFill(ipu, instruction.fill());
    case Instruction::kCopy:
      return PrepareCopy(ipu, instruction.copy());
    case Instruction::kCast:
      return PrepareCast(ipu, instruction.cast());
    case Instruction::kUnary:
      return PrepareUnary(ipu, instruction.unary());
    case Instruction::kBinary:
      return PrepareBinary(ipu, instruction.binary());
    case Instruction::kReduce:
      return PrepareReduce(ipu, instruction.reduce());
    case Instruction::kArgMax:
      return PrepareArgMax(ipu, instruction.arg_max());
    case Instruction::kMatMul:
      return PrepareMatMul(ipu, instruction.mat_mul());
    case Instruction::kConv2D:
      return PrepareConv2d(ipu, instruction.conv2d());
    case Instruction::kMaxPool2D:
      return PrepareMaxPool2d(ipu, instruction.max_pool2d());
    case Instruction::kMaxPool2DGradient:
      return PrepareMaxPool2dGradient(ipu, instruction.max_pool2d_gradient());
    case Instruction::kSoftmaxCrossEntropy:
      return PrepareSoftmaxCrossEntropy(ipu, instruction.softmax_cross_entropy());
    case Instruction::kSoftmaxCrossEntropyGradient:
      return PrepareSoftmaxCrossEntropyGradient(ipu, instruction.softmax_cross_entropy_gradient());
    case Instruction::kAccumulate:
      return PrepareAccumulate(ipu, instruction.accumulate());
    case Instruction::kSgd:
      return PrepareSgd(ipu, instruction.sgd());
    default:
      return absl::InternalError("not a computing instruction");
  }
}

}  // namespace vpod::engine
