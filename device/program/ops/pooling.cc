#include "device/program/ops/pooling.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::program {
namespace {

constexpr Constraint kIndices{"pool_c1", "The indices are int32 of the output gradient's shape."};
constexpr Constraint kEither{"pool_c2", "There is a window or an output size, not both."};
constexpr Constraint kImages{
    "pool_c3",
    "Image and output gradient are floats [batch, channels, one to three spatial dimensions]; only "
    "the batch may be 0."};
constexpr Constraint kOutputSize{
    "pool_c4",
    "Without a window, the size of the output has an entry of 1 or more for each spatial dimension "
    "of the image."};
constexpr Constraint kWindow{
    "pool_c5",
    "Each field of the window has an entry for each spatial dimension; kernel, stride and dilation "
    "are 1 to 2^31, padding is below the extent of a window, `dilation * (kernel - 1) + 1`, and a "
    "window fits the padded image."};
constexpr Constraint kGradient{
    "pool_c6", "The output gradient has the type that the pooling of an image of that size gives."};

}  // namespace

absl::StatusOr<TensorType> PooledType(const TensorType& image, const v1::SlidingWindow& window) {
  VPOD_RETURN_IF_ERROR(CheckImage(kImages, "image", image));
  VPOD_ASSIGN_OR_RETURN(const Dims sizes, CountWindows(kWindow, SpatialDims(image), window));
  TensorType result = ImageType(image, image.dims[1], sizes);
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

const v1::SlidingWindow* FindPoolingWindow(const v1::Instruction& instruction) {
  const auto find = [](const auto& op) { return op.has_window() ? &op.window() : nullptr; };
  switch (instruction.attributes_case()) {
    case v1::Instruction::kMaxPool:
      return find(instruction.max_pool());
    case v1::Instruction::kMaxPoolGradient:
      return find(instruction.max_pool_gradient());
    case v1::Instruction::kAveragePool:
      return find(instruction.average_pool());
    default:
      return find(instruction.average_pool_gradient());
  }
}

PixelRange DividingWindow(int64_t size, int64_t count, int64_t i) {
  return {i * size / count, ((i + 1) * size + count - 1) / count};
}

int64_t DividingPixels(int64_t size, int64_t count) { return size + count - std::gcd(size, count); }

double PoolingElements(const v1::Instruction& instruction, const TensorType& image,
                       const TensorType& pooled) {
  if (const v1::SlidingWindow* window = FindPoolingWindow(instruction))
    return static_cast<double>(pooled.elements()) * KernelElements(*window);
  double elements = static_cast<double>(image.dims[0]) * static_cast<double>(image.dims[1]);
  for (size_t i = kImageHead; i < image.dims.size(); ++i)
    elements *= static_cast<double>(DividingPixels(image.dims[i], pooled.dims[i]));
  return elements;
}

namespace {

using Sizes = google::protobuf::RepeatedField<int64_t>;

// The result of a pooling whose windows divide the image.
absl::StatusOr<TensorType> DividedType(const TensorType& image, const Dims& sizes) {
  VPOD_RETURN_IF_ERROR(CheckImage(kImages, "image", image));
  if (sizes.size() != SpatialDims(image).size() ||
      std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 1; })) {
    return Broken(
        kOutputSize,
        absl::StrCat("output size [", absl::StrJoin(sizes, ","), "] of ", image.ToString(),
                     " needs an entry of 1 or more for each spatial dimension"));
  }
  TensorType result = ImageType(image, image.dims[1], sizes);
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

template <class Pooling>
absl::StatusOr<TensorType> ResultType(const Pooling& op, const TensorType& image) {
  if (!op.has_window())
    return DividedType(image, Dims(op.output_size().begin(), op.output_size().end()));
  if (!op.output_size().empty())
    return Broken(kEither, "a pooling has a window or an output size, not both");
  return PooledType(image, op.window());
}

// The image of which a gradient is taken, from the gradient of its pooling.
absl::StatusOr<TensorType> UnpooledType(const TensorType& gradient, const Sizes& image_size,
                                        const v1::SlidingWindow* window) {
  VPOD_RETURN_IF_ERROR(CheckImage(kImages, "output gradient", gradient));
  TensorType image =
      ImageType(gradient, gradient.dims[1], Dims(image_size.begin(), image_size.end()));
  VPOD_RETURN_IF_ERROR(Check(image));
  VPOD_ASSIGN_OR_RETURN(const TensorType pooled, window != nullptr
                                                     ? PooledType(image, *window)
                                                     : DividedType(image, SpatialDims(gradient)));
  VPOD_RETURN_IF_ERROR(CheckInput(kGradient, "output gradient", gradient, pooled));
  return image;
}

// One for each element of each window.
double PoolingOperations(const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
                         absl::Span<const TensorType> outputs) {
  const bool forward = instruction.has_max_pool() || instruction.has_average_pool();
  return PoolingElements(instruction, forward ? inputs[0] : outputs[0],
                         forward ? outputs[0] : inputs[0]);
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
         VPOD_ASSIGN_OR_RETURN(TensorType output, ResultType(instruction.max_pool(), inputs[0]));
         TensorType indices{v1::INT32, output.dims};
         return Types{std::move(output), std::move(indices)};
       },
       .constraints = {kEither, kImages, kOutputSize, kWindow},
       .operations = PoolingOperations,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kMaxPoolGradient,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(
             CheckInput(kIndices, "index tensor", inputs[1], {v1::INT32, inputs[0].dims}));
         return OneOutput(UnpooledType(inputs[0], instruction.max_pool_gradient().image_size(),
                                       FindPoolingWindow(instruction)));
       },
       .constraints = {kIndices, kImages, kOutputSize, kWindow, kGradient},
       .operations = PoolingOperations,
       .rounds = true,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kAveragePool,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(ResultType(instruction.average_pool(), inputs[0]));
       },
       .constraints = {kEither, kImages, kOutputSize, kWindow},
       .operations = PoolingOperations,
       .rounds = true,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kAveragePoolGradient,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(UnpooledType(inputs[0], instruction.average_pool_gradient().image_size(),
                                       FindPoolingWindow(instruction)));
       },
       .constraints = {kImages, kOutputSize, kWindow, kGradient},
       .operations = PoolingOperations,
       .rounds = true,
       .layout = ImagesLayout},
  };
}

}  // namespace vpod::program
