#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/window.h"

namespace vpod::program {
namespace {

absl::StatusOr<int64_t> WindowedLength(int64_t length, int64_t kernel, int64_t stride,
                                       int64_t before, int64_t after) {
  if (kernel < 1 || stride < 1 || before >= kernel || after >= kernel ||
      length + before + after < kernel) {
    return absl::InvalidArgumentError(absl::StrCat("window of ", kernel, " with stride ", stride,
                                                   " and padding ", before, "+", after,
                                                   " does not fit an axis of ", length));
  }
  return (length + before + after - kernel) / stride + 1;
}

}  // namespace

absl::StatusOr<std::pair<int64_t, int64_t>> WindowedSize(const TensorType& image,
                                                         const v1::Window& window, int64_t kernel_h,
                                                         int64_t kernel_w) {
  VPOD_ASSIGN_OR_RETURN(int64_t height, WindowedLength(image.dims[1], kernel_h, window.stride_h(),
                                                       window.pad_top(), window.pad_bottom()));
  VPOD_ASSIGN_OR_RETURN(int64_t width, WindowedLength(image.dims[2], kernel_w, window.stride_w(),
                                                      window.pad_left(), window.pad_right()));
  return std::make_pair(height, width);
}

absl::StatusOr<TensorType> MaxPool2dType(const TensorType& image, const v1::Window& window) {
  VPOD_RETURN_IF_ERROR(Check(image));
  if (image.rank() != 4 || !IsFloat(image.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max-pool does not take ", image.ToString(), "; it needs an NHWC image"));
  }
  VPOD_ASSIGN_OR_RETURN(auto size,
                        WindowedSize(image, window, window.kernel_h(), window.kernel_w()));
  TensorType result{image.type, {image.dims[0], size.first, size.second, image.dims[3]}};
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

namespace {

absl::Status CheckPool(uint32_t input, uint32_t output, const v1::Window& window,
                       const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(TensorType input_type, tensors.Plain(input));
  VPOD_ASSIGN_OR_RETURN(TensorType output_type, MaxPool2dType(input_type, window));
  VPOD_RETURN_IF_ERROR(
      tensors.CheckOperations(output_type.elements(), {window.kernel_h(), window.kernel_w()}));
  return tensors.Expect(output, output_type);
}

}  // namespace

std::vector<OpDef> PoolOps() {
  return {
      {v1::Instruction::kMaxPool2D,
       Role::kKernel,
       {{"input", Access::kRead}, {"output", Access::kWrite}},
       [](const v1::Instruction& instruction, const Operands& tensors) -> absl::Status {
         const v1::MaxPool2d& op = instruction.max_pool2d();
         return CheckPool(op.input(), op.output(), op.window(), tensors);
       }},
      {v1::Instruction::kMaxPool2DGradient,
       Role::kKernel,
       {{"input", Access::kRead},
        {"output_gradient", Access::kRead},
        {"input_gradient", Access::kWrite}},
       [](const v1::Instruction& instruction, const Operands& tensors) -> absl::Status {
         const v1::MaxPool2dGradient& op = instruction.max_pool2d_gradient();
         VPOD_RETURN_IF_ERROR(CheckPool(op.input(), op.output_gradient(), op.window(), tensors));
         VPOD_ASSIGN_OR_RETURN(TensorType input, tensors.Plain(op.input()));
         return tensors.Expect(op.input_gradient(), input);
       }},
  };
}

}  // namespace vpod::program
