#include "device/engine/kernels/convolution.h"

#include "device/engine/kernels/convolution_blocks.h"

namespace vpod::engine {
namespace {

using program::v1::Convolution;

ConvolutionShape ShapeOf(const Convolution& op, const program::TensorType& image,
                         const program::TensorType& result) {
  const auto dims = [](const auto& field) { return program::Dims(field.begin(), field.end()); };
  return {.images = image.dims[0],
          .groups = op.groups(),
          .channels = image.dims[1],
          .outputs = result.dims[1],
          .image = program::SpatialDims(image),
          .result = program::SpatialDims(result),
          .kernel = dims(op.window().kernel()),
          .stride = dims(op.window().stride()),
          .dilation = dims(op.window().dilation()),
          .pad_before = dims(op.window().pad_before()),
          .pad_after = dims(op.window().pad_after())};
}

ConvolutionStep StepOf(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Convolution& op = instruction.convolution();
  ConvolutionStep step{.pass = op.pass(),
                       .a = Resolve(ipu, instruction.inputs(0)),
                       .b = Resolve(ipu, instruction.inputs(1)),
                       .output = ResolveOutput(ipu, instruction, 0)};
  const auto &a = step.a.type, &b = step.b.type, &output = step.output.type;
  step.shape = op.pass() == Convolution::FORWARD          ? ShapeOf(op, a, output)
               : op.pass() == Convolution::INPUT_GRADIENT ? ShapeOf(op, output, a)
                                                          : ShapeOf(op, a, b);
  return step;
}

}  // namespace

absl::StatusOr<Kernel> PrepareConvolution(const program::v1::Ipu& ipu,
                                          const Instruction& instruction,
                                          const ConvolutionLimits& limits) {
  const ConvolutionStep step = StepOf(ipu, instruction);
  // No images, whose gradients have no terms.
  if (step.a.type.empty()) return ZeroKernel(step.output);
  if (limits.loops || IsForLoops(step)) return LoopConvolution(step, limits);
  return Guarded([&]() -> absl::StatusOr<Kernel> {
    return step.pass == Convolution::WEIGHT_GRADIENT ? PrepareWeightGradient(step, limits)
                                                     : PrepareSliding(step, limits);
  });
}

std::vector<KernelDef> ConvolutionKernels() {
  return {
      {Instruction::kConvolution, [](const program::v1::Ipu& ipu, const Instruction& instruction) {
         return PrepareConvolution(ipu, instruction, ConvolutionLimits());
       }}};
}

}  // namespace vpod::engine
