#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::program {

absl::StatusOr<TensorType> PooledType(const TensorType& image, const v1::SlidingWindow& window) {
  VPOD_RETURN_IF_ERROR(CheckImage("image", image));
  VPOD_ASSIGN_OR_RETURN(const Dims sizes, CountWindows(SpatialDims(image), window));
  TensorType result = ImageType(image, image.dims[1], sizes);
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

namespace {

// The image of which a gradient is taken, from the gradient of its pooling.
absl::StatusOr<TensorType> UnpooledType(const TensorType& gradient,
                                        const google::protobuf::RepeatedField<int64_t>& image_size,
                                        const v1::SlidingWindow& window) {
  VPOD_RETURN_IF_ERROR(CheckImage("output gradient", gradient));
  TensorType image =
      ImageType(gradient, gradient.dims[1], Dims(image_size.begin(), image_size.end()));
  VPOD_RETURN_IF_ERROR(Check(image));
  VPOD_ASSIGN_OR_RETURN(const TensorType pooled, PooledType(image, window));
  VPOD_RETURN_IF_ERROR(CheckInput("output gradient", gradient, pooled));
  return image;
}

const v1::SlidingWindow& WindowOf(const v1::Instruction& instruction) {
  switch (instruction.attributes_case()) {
    case v1::Instruction::kMaxPool:
      return instruction.max_pool().window();
    case v1::Instruction::kMaxPoolGradient:
      return instruction.max_pool_gradient().window();
    case v1::Instruction::kAveragePool:
      return instruction.average_pool().window();
    default:
      return instruction.average_pool_gradient().window();
  }
}

// One for each element of each window.
double PoolingOperations(const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
                         absl::Span<const TensorType> outputs) {
  const bool forward = instruction.has_max_pool() || instruction.has_average_pool();
  const TensorType& pooled = forward ? outputs[0] : inputs[0];
  return static_cast<double>(pooled.elements()) * KernelElements(WindowOf(instruction));
}

}  // namespace

std::vector<OpDef> PoolingOps() {
  return {
      {.kind = v1::Instruction::kMaxPool,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {2, 2},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(TensorType output, PooledType(inputs[0], WindowOf(instruction)));
         TensorType indices{v1::INT32, output.dims};
         return Types{std::move(output), std::move(indices)};
       },
       .operations = PoolingOperations,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kMaxPoolGradient,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckInput("index tensor", inputs[1], {v1::INT32, inputs[0].dims}));
         return OneOutput(UnpooledType(inputs[0], instruction.max_pool_gradient().image_size(),
                                       WindowOf(instruction)));
       },
       .operations = PoolingOperations,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kAveragePool,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(PooledType(inputs[0], WindowOf(instruction)));
       },
       .operations = PoolingOperations,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kAveragePoolGradient,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(UnpooledType(inputs[0], instruction.average_pool_gradient().image_size(),
                                       WindowOf(instruction)));
       },
       .operations = PoolingOperations,
       .layout = ImagesLayout},
  };
}

}  // namespace vpod::program
