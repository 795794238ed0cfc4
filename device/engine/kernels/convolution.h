// The ways to compute a convolution.
#pragma once

#include "device/engine/kernels/convolution_plan.h"

namespace vpod::engine {

// A pass and its operands, in the order of the instruction.
struct ConvolutionStep {
  program::v1::Convolution::Pass pass;
  ConvolutionShape shape;
  Operand a, b, output;

  const Operand& weights() const {
    return pass == program::v1::Convolution::WEIGHT_GRADIENT ? output : b;
  }
};

// By oneDNN if it has a good implementation, otherwise by loops.
absl::StatusOr<Kernel> PrepareConvolution(const program::v1::Ipu& ipu,
                                          const Instruction& instruction,
                                          const ConvolutionLimits& limits);

// Plain loops, for shapes that oneDNN computes no faster, or for which it would need memory that
// nobody has. A chunk is some results, or a part of one result's sum; sums are float64.
Kernel LoopConvolution(const ConvolutionStep& step, const ConvolutionLimits& limits);

}  // namespace vpod::engine
