#include "absl/strings/str_cat.h"
#include "device/base/status.h"
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

}  // namespace vpod::program
