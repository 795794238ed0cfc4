#include "device/arch/hardware.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

using program::v1::Convolution;

uint64_t Product(const program::Dims& dims, size_t first) {
  uint64_t product = 1;
  for (size_t i = first; i < dims.size(); ++i) product *= static_cast<uint64_t>(dims[i]);
  return product;
}

// A convolution is the matmul of its unrolled windows (all three passes), one for each group.
TilePlan ConvolutionPlan(const Instruction& instruction, const PlanContext& context) {
  const Convolution& op = instruction.convolution();
  const program::TensorType a = context.Type(instruction.inputs(0)),
                            b = context.Type(instruction.inputs(1)),
                            output = context.Type(instruction.outputs(0));
  const program::TensorType& weights = op.pass() == Convolution::WEIGHT_GRADIENT ? output : b;
  const program::TensorType& result = op.pass() == Convolution::FORWARD          ? output
                                      : op.pass() == Convolution::INPUT_GRADIENT ? a
                                                                                 : b;
  const uint64_t pixels = static_cast<uint64_t>(result.dims[0]) * Product(result.dims, 2);
  const uint64_t window = Product(weights.dims, 1);
  const uint64_t outputs = static_cast<uint64_t>(weights.dims[0]) / op.groups();
  TilePlan plan{.bytes = {{.vertex_code = arch::kAmpVertexCodeBytes}}};
  switch (op.pass()) {
    case Convolution::INPUT_GRADIENT:
      plan.steps = MatMulSteps(pixels, outputs, window, a.type);
      break;
    case Convolution::WEIGHT_GRADIENT:
      plan.steps = MatMulSteps(window, pixels, outputs, a.type);
      break;
    default:
      plan.steps = MatMulSteps(pixels, window, outputs, a.type);
  }
  for (PlanStep& step : plan.steps) step.times = op.groups();
  return plan;
}

}  // namespace

std::vector<PlanDef> ConvolutionPlans() { return {{Instruction::kConvolution, ConvolutionPlan}}; }

}  // namespace vpod::model
