#include "device/engine/kernels/kernel.h"

#include "device/program/op_rows.h"

namespace vpod::engine {

const KernelDef* FindKernel(program::OpKind kind) {
  static const auto* const table = new program::OpRows<KernelDef>{
      BatchNormKernels, ConvolutionKernels, CumulateKernels,  DataMovementKernels, LossKernels,
      GatherKernels,    GradientKernels,    LayerNormKernels, MapKernels,          MatMulKernels,
      OptimizerKernels, PoolingKernels,     RandomKernels,    ReduceKernels,       RemoteKernels,
      SoftmaxKernels,   SortKernels};
  return table->Find(kind);
}

absl::StatusOr<Kernel> PrepareKernel(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const KernelDef* kernel = FindKernel(instruction.attributes_case());
  if (kernel == nullptr) return absl::InternalError("not a computing instruction");
  return kernel->prepare(ipu, instruction);
}

}  // namespace vpod::engine
