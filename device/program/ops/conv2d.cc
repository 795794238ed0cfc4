#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/window.h"

namespace vpod::program {

absl::StatusOr<TensorType> Conv2dType(const TensorType& image, const TensorType& weights,
                                      const v1::Window& window) {
  VPOD_RETURN_IF_ERROR(Check(image));
  VPOD_RETURN_IF_ERROR(Check(weights));
  if (image.rank() != 4 || weights.rank() != 4 || image.type != weights.type ||
      !IsFloat(image.type) || image.dims[3] != weights.dims[2]) {
    return absl::InvalidArgumentError(absl::StrCat("conv2d does not take image ", image.ToString(),
                                                   " (NHWC) and weights ", weights.ToString(),
                                                   " (HWIO)"));
  }
  VPOD_ASSIGN_OR_RETURN(auto size, WindowedSize(image, window, weights.dims[0], weights.dims[1]));
  TensorType result{image.type, {image.dims[0], size.first, size.second, weights.dims[3]}};
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

namespace {

absl::Status CheckConv2d(const v1::Instruction& instruction, const Operands& tensors) {
  const v1::Conv2d& op = instruction.conv2d();
  // Which of a, b and output plays image, weights and result of the forward pass.
  uint32_t image = 0, weights = 0, result = 0;
  switch (op.pass()) {
    case v1::Conv2d::FORWARD:
      image = op.a(), weights = op.b(), result = op.output();
      break;
    case v1::Conv2d::INPUT_GRADIENT:
      result = op.a(), weights = op.b(), image = op.output();
      break;
    case v1::Conv2d::WEIGHT_GRADIENT:
      image = op.a(), result = op.b(), weights = op.output();
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("unknown convolution pass ", op.pass()));
  }
  VPOD_ASSIGN_OR_RETURN(TensorType image_type, tensors.Plain(image));
  VPOD_ASSIGN_OR_RETURN(TensorType weights_type, tensors.Plain(weights));
  VPOD_ASSIGN_OR_RETURN(TensorType result_type, Conv2dType(image_type, weights_type, op.window()));
  VPOD_RETURN_IF_ERROR(tensors.CheckOperations(
      result_type.elements(), {weights_type.dims[0], weights_type.dims[1], weights_type.dims[2]}));
  return tensors.Expect(result, result_type);
}

}  // namespace

std::vector<OpDef> Conv2dOps() {
  return {{v1::Instruction::kConv2D,
           Role::kKernel,
           {{"a", Access::kRead}, {"b", Access::kRead}, {"output", Access::kWrite}},
           CheckConv2d}};
}

}  // namespace vpod::program
