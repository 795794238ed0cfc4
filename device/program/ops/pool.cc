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

double WindowOperations(double results, const v1::Window& window) {
  return results * window.kernel_h() * window.kernel_w();
}

}  // namespace

std::vector<OpDef> PoolOps() {
  return {
      {.kind = v1::Instruction::kMaxPool2D,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(MaxPool2dType(inputs[0], instruction.max_pool2d().window()));
       },
       .operations =
           [](const v1::Instruction& instruction, absl::Span<const TensorType>,
              absl::Span<const TensorType> outputs) {
             return WindowOperations(static_cast<double>(outputs[0].elements()),
                                     instruction.max_pool2d().window());
           }},
      {.kind = v1::Instruction::kMaxPool2DGradient,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(
             const TensorType output,
             MaxPool2dType(inputs[0], instruction.max_pool2d_gradient().window()));
         VPOD_RETURN_IF_ERROR(CheckInput("output gradient", inputs[1], output));
         return Types{inputs[0]};
       },
       .operations =
           [](const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
              absl::Span<const TensorType>) {
             return WindowOperations(static_cast<double>(inputs[1].elements()),
                                     instruction.max_pool2d_gradient().window());
           }},
  };
}

}  // namespace vpod::program
