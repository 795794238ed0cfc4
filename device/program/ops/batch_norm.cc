#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::program {
namespace {

// InvalidArgument unless x has channels and epsilon is above 0. The type of what there is one of
// for each channel.
absl::StatusOr<TensorType> ChannelType(const TensorType& x, float epsilon) {
  if (x.rank() < 2 || !IsFloat(x.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("x is ", x.ToString(), ", must be floats [batch, channels, …]"));
  }
  if (!(epsilon > 0))
    return absl::InvalidArgumentError(absl::StrCat("epsilon is ", epsilon, ", must be above 0"));
  return TensorType{v1::FLOAT32, {x.dims[1]}};
}

}  // namespace

std::vector<OpDef> BatchNormOps() {
  return {
      {.kind = v1::Instruction::kBatchNorm,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {3, 3},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(const TensorType channels,
                               ChannelType(inputs[0], instruction.batch_norm().epsilon()));
         VPOD_RETURN_IF_ERROR(CheckInput("scale", inputs[1], channels));
         VPOD_RETURN_IF_ERROR(CheckInput("offset", inputs[2], channels));
         return Types{inputs[0], channels, channels};
       },
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kBatchNormInference,
       .role = Role::kKernel,
       .inputs = {5, 5},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(
             const TensorType channels,
             ChannelType(inputs[0], instruction.batch_norm_inference().epsilon()));
         const char* names[] = {"x", "scale", "offset", "mean", "variance"};
         for (size_t i = 1; i < 5; ++i)
           VPOD_RETURN_IF_ERROR(CheckInput(names[i], inputs[i], channels));
         return Types{inputs[0]};
       },
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kBatchNormGradient,
       .role = Role::kKernel,
       .inputs = {5, 5},
       .outputs = {3, 3},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(const TensorType channels,
                               ChannelType(inputs[0], instruction.batch_norm_gradient().epsilon()));
         VPOD_RETURN_IF_ERROR(CheckInput("gradient", inputs[1], inputs[0]));
         VPOD_RETURN_IF_ERROR(CheckInput("scale", inputs[2], channels));
         VPOD_RETURN_IF_ERROR(CheckInput("mean", inputs[3], channels));
         VPOD_RETURN_IF_ERROR(CheckInput("variance", inputs[4], channels));
         return Types{inputs[0], channels, channels};
       },
       .layout = ImagesLayout},
  };
}

}  // namespace vpod::program
