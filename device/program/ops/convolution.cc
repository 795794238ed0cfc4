#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::program {

absl::StatusOr<TensorType> ConvolutionType(const TensorType& image, const TensorType& weights,
                                           const v1::SlidingWindow& window, uint32_t groups) {
  VPOD_RETURN_IF_ERROR(CheckImage("image", image));
  const int64_t channels = image.dims[1];
  if (groups < 1 || channels % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups is ", groups, ", must divide the ", channels, " channels"));
  }
  Dims expected = {weights.dims.empty() ? 0 : weights.dims[0], channels / groups};
  expected.insert(expected.end(), window.kernel().begin(), window.kernel().end());
  VPOD_RETURN_IF_ERROR(CheckInput("weight tensor", weights, {image.type, expected}));
  if (weights.dims[0] % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups is ", groups, ", must divide the ", weights.dims[0], " outputs"));
  }
  if (weights.dims[0] == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight tensor is ", weights.ToString(), " and has no outputs"));
  }
  VPOD_ASSIGN_OR_RETURN(const Dims sizes, CountWindows(SpatialDims(image), window));
  TensorType result = ImageType(image, weights.dims[0], sizes);
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

namespace {

absl::Status CheckResult(const TensorType& result, const TensorType& image,
                         const TensorType& weights, const v1::Convolution& op) {
  VPOD_ASSIGN_OR_RETURN(const TensorType expected,
                        ConvolutionType(image, weights, op.window(), op.groups()));
  return CheckInput("result gradient", result, expected);
}

absl::StatusOr<Types> InferConvolution(const v1::Instruction& instruction,
                                       absl::Span<const TensorType> inputs) {
  const v1::Convolution& op = instruction.convolution();
  const TensorType &a = inputs[0], &b = inputs[1];
  if (op.pass() != v1::Convolution::INPUT_GRADIENT && !op.image_size().empty())
    return absl::InvalidArgumentError("only INPUT_GRADIENT has an image_size");
  switch (op.pass()) {
    case v1::Convolution::FORWARD:
      return OneOutput(ConvolutionType(a, b, op.window(), op.groups()));
    case v1::Convolution::INPUT_GRADIENT: {
      VPOD_RETURN_IF_ERROR(CheckImage("result gradient", a));
      if (b.rank() < 2 || op.groups() < 1 || b.dims[1] > kMaxElements / op.groups())
        return absl::InvalidArgumentError("the weights and groups give no number of channels");
      const Dims sizes(op.image_size().begin(), op.image_size().end());
      TensorType image = ImageType(a, b.dims[1] * op.groups(), sizes);
      VPOD_RETURN_IF_ERROR(Check(image));
      VPOD_RETURN_IF_ERROR(CheckResult(a, image, b, op));
      return Types{std::move(image)};
    }
    case v1::Convolution::WEIGHT_GRADIENT: {
      VPOD_RETURN_IF_ERROR(CheckImage("image", a));
      VPOD_RETURN_IF_ERROR(CheckImage("result gradient", b));
      if (op.groups() < 1) return absl::InvalidArgumentError("groups is 0, must be 1 or more");
      TensorType weights{a.type, {b.dims[1], a.dims[1] / op.groups()}};
      weights.dims.insert(weights.dims.end(), op.window().kernel().begin(),
                          op.window().kernel().end());
      VPOD_RETURN_IF_ERROR(Check(weights));
      VPOD_RETURN_IF_ERROR(CheckResult(b, a, weights, op));
      return Types{std::move(weights)};
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat("unknown convolution pass ", op.pass()));
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
           .operations = ConvolutionOperations,
           .flops_per_operation = 2,
           .rounds = true,
           .layout = ConvolutionLayout}};
}

}  // namespace vpod::program
