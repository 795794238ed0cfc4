#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::program {
namespace {

constexpr Constraint kImageSize{"conv_c1", "Only the pass INPUT_GRADIENT has an image size."};
constexpr Constraint kPass{"conv_c2", "The pass is FORWARD, INPUT_GRADIENT or WEIGHT_GRADIENT."};
constexpr Constraint kImages{
    "conv_c3",
    "Image and result gradient are floats [batch, channels, one to three spatial dimensions]; only "
    "the batch may be 0."};
constexpr Constraint kChannels{
    "conv_c4",
    "In the pass INPUT_GRADIENT, the second dimension of the weights times the groups, which are 1 "
    "or more, is the number of channels, at most 2^31."};
constexpr Constraint kGroups{
    "conv_c5", "There are 1 or more groups, whose number divides the channels and the outputs."};
constexpr Constraint kWeights{
    "conv_c6",
    "The weights have the element type of the image and are [outputs, channels / groups, kernel…] "
    "with 1 or more outputs."};
constexpr Constraint kWindow{
    "conv_c7",
    "Each field of the window has an entry for each spatial dimension; kernel, stride and dilation "
    "are 1 to 2^31, padding is below the extent of a window, `dilation * (kernel - 1) + 1`, and a "
    "window fits the padded image."};
constexpr Constraint kResult{"conv_c8",
                             "The result gradient has the type of the result of the pass FORWARD."};
constexpr Constraint kPlan{"conv_c9",
                           "Partial results are FLOAT32, or FLOAT16 if the image is; the memory "
                           "proportion is 0 to 1."};

}  // namespace

absl::StatusOr<TensorType> ConvolutionType(const TensorType& image, const TensorType& weights,
                                           const v1::SlidingWindow& window, uint32_t groups) {
  VPOD_RETURN_IF_ERROR(CheckImage(kImages, "image", image));
  const int64_t channels = image.dims[1];
  if (groups < 1 || channels % groups != 0) {
    return Broken(kGroups,
                  absl::StrCat("groups is ", groups, ", must divide the ", channels, " channels"));
  }
  Dims expected = {weights.dims.empty() ? 0 : weights.dims[0], channels / groups};
  expected.insert(expected.end(), window.kernel().begin(), window.kernel().end());
  VPOD_RETURN_IF_ERROR(CheckInput(kWeights, "weight tensor", weights, {image.type, expected}));
  if (weights.dims[0] % groups != 0) {
    return Broken(kGroups, absl::StrCat("groups is ", groups, ", must divide the ", weights.dims[0],
                                        " outputs"));
  }
  if (weights.dims[0] == 0) {
    return Broken(kWeights,
                  absl::StrCat("the weight tensor is ", weights.ToString(), " and has no outputs"));
  }
  VPOD_ASSIGN_OR_RETURN(const Dims sizes, CountWindows(kWindow, SpatialDims(image), window));
  TensorType result = ImageType(image, weights.dims[0], sizes);
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

namespace {

absl::Status CheckResult(const TensorType& result, const TensorType& image,
                         const TensorType& weights, const v1::Convolution& op) {
  VPOD_ASSIGN_OR_RETURN(const TensorType expected,
                        ConvolutionType(image, weights, op.window(), op.groups()));
  return CheckInput(kResult, "result gradient", result, expected);
}

absl::StatusOr<Types> InferConvolution(const v1::Instruction& instruction,
                                       absl::Span<const TensorType> inputs) {
  const v1::Convolution& op = instruction.convolution();
  const TensorType &a = inputs[0], &b = inputs[1];
  if (op.pass() != v1::Convolution::INPUT_GRADIENT && !op.image_size().empty())
    return Broken(kImageSize, "only INPUT_GRADIENT has an image_size");
  VPOD_RETURN_IF_ERROR(CheckProductPlan(kPlan, op.plan(), a.type));
  switch (op.pass()) {
    case v1::Convolution::FORWARD:
      return OneOutput(ConvolutionType(a, b, op.window(), op.groups()));
    case v1::Convolution::INPUT_GRADIENT: {
      VPOD_RETURN_IF_ERROR(CheckImage(kImages, "result gradient", a));
      if (b.rank() < 2 || op.groups() < 1 || b.dims[1] > kMaxElements / op.groups())
        return Broken(kChannels, "the weights and groups give no number of channels");
      const Dims sizes(op.image_size().begin(), op.image_size().end());
      TensorType image = ImageType(a, b.dims[1] * op.groups(), sizes);
      VPOD_RETURN_IF_ERROR(Check(image));
      VPOD_RETURN_IF_ERROR(CheckResult(a, image, b, op));
      return Types{std::move(image)};
    }
    case v1::Convolution::WEIGHT_GRADIENT: {
      VPOD_RETURN_IF_ERROR(CheckImage(kImages, "image", a));
      VPOD_RETURN_IF_ERROR(CheckImage(kImages, "result gradient", b));
      if (op.groups() < 1) return Broken(kGroups, "groups is 0, must be 1 or more");
      TensorType weights{a.type, {b.dims[1], a.dims[1] / op.groups()}};
      weights.dims.insert(weights.dims.end(), op.window().kernel().begin(),
                          op.window().kernel().end());
      VPOD_RETURN_IF_ERROR(Check(weights));
      VPOD_RETURN_IF_ERROR(CheckResult(b, a, weights, op));
      return Types{std::move(weights)};
    }
    default:
      return Broken(kPass, absl::StrCat("unknown convolution pass ", op.pass()));
  }
}

// Each element of the result takes as many multiply-adds as its filter has weights.
double ConvolutionOperations(const v1::Instruction& instruction,
                             absl::Span<const TensorType> inputs,
                             absl::Span<const TensorType> outputs) {
  const v1::Convolution::Pass pass = instruction.convolution().pass();
  const TensorType& weights = pass == v1::Convolution::WEIGHT_GRADIENT ? outputs[0] : inputs[1];
  const TensorType& result = pass == v1::Convolution::FORWARD          ? outputs[0]
                             : pass == v1::Convolution::INPUT_GRADIENT ? inputs[0]
                                                                       : inputs[1];
  return static_cast<double>(result.elements()) * static_cast<double>(weights.elements()) /
         static_cast<double>(weights.dims[0]);
}

Layout ConvolutionLayout(const v1::Instruction& instruction, OperandPlace operand) {
  const bool gives_weights = instruction.convolution().pass() == v1::Convolution::WEIGHT_GRADIENT;
  const bool weights = gives_weights ? operand.output : !operand.output && operand.position == 1;
  return weights ? Layout::kDense : Layout::kChannelsLast;
}

}  // namespace

std::vector<OpDef> ConvolutionOps() {
  return {{.kind = v1::Instruction::kConvolution,
           .role = Role::kKernel,
           .inputs = {2, 2},
           .outputs = {1, 1},
           .infer = InferConvolution,
           .constraints = {kImageSize, kPass, kImages, kChannels, kGroups, kWeights, kWindow,
                           kResult, kPlan},
           .operations = ConvolutionOperations,
           .flops_per_operation = 2,
           .rounds = true,
           .layout = ConvolutionLayout}};
}

}  // namespace vpod::program
