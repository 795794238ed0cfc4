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

// Image, weights and result of the forward pass, of which a pass has two as its inputs and the
// third as its output.
struct Roles {
  uint32_t image, weights, result;
};

absl::StatusOr<Roles> RolesOf(const v1::Instruction& instruction) {
  const uint32_t a = instruction.inputs(0), b = instruction.inputs(1),
                 output = instruction.outputs(0);
  switch (instruction.conv2d().pass()) {
    case v1::Conv2d::FORWARD:
      return Roles{.image = a, .weights = b, .result = output};
    case v1::Conv2d::INPUT_GRADIENT:
      return Roles{.image = output, .weights = b, .result = a};
    case v1::Conv2d::WEIGHT_GRADIENT:
      return Roles{.image = a, .weights = output, .result = b};
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown convolution pass ", instruction.conv2d().pass()));
  }
}

absl::Status CheckConv2d(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const Roles roles, RolesOf(instruction));
  VPOD_ASSIGN_OR_RETURN(const TensorType image, tensors.Plain(roles.image));
  VPOD_ASSIGN_OR_RETURN(const TensorType weights, tensors.Plain(roles.weights));
  VPOD_ASSIGN_OR_RETURN(const TensorType result,
                        Conv2dType(image, weights, instruction.conv2d().window()));
  return tensors.Expect(roles.result, result);
}

// Each element of the result takes as many multiply-adds as its filter has weights.
double Conv2dOperations(const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
                        absl::Span<const TensorType> outputs) {
  const v1::Conv2d::Pass pass = instruction.conv2d().pass();
  const TensorType& weights = pass == v1::Conv2d::WEIGHT_GRADIENT ? outputs[0] : inputs[1];
  const TensorType& result = pass == v1::Conv2d::FORWARD          ? outputs[0]
                             : pass == v1::Conv2d::INPUT_GRADIENT ? inputs[0]
                                                                  : inputs[1];
  return static_cast<double>(result.elements()) * static_cast<double>(weights.elements()) /
         static_cast<double>(weights.dims[3]);
}

}  // namespace

std::vector<OpDef> Conv2dOps() {
  return {{.kind = v1::Instruction::kConv2D,
           .role = Role::kKernel,
           .inputs = {2, 2},
           .outputs = {1, 1},
           .check = CheckConv2d,
           .operations = Conv2dOperations}};
}

}  // namespace vpod::program
