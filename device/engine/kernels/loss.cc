#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropy(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const Operand logits = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss = Resolve(ipu, instruction.outputs(0)),
                probabilities = Resolve(ipu, instruction.outputs(1));
  const auto classes = static_cast<size_t>(logits.type.dims[1]);
  return [=](std::byte* arena) -> absl::Status {
    const float* in = ReadFloats(logits, arena, 0);
    const auto* label = labels.As<int32_t>(arena);
    float* losses = WriteFloats(loss, arena, 1);
    float* out = WriteFloats(probabilities, arena, 2);
    for (size_t row = 0; row < labels.elements(); ++row) {
      if (label[row] < 0 || static_cast<size_t>(label[row]) >= classes) {
        return absl::InvalidArgumentError(
            absl::StrCat("label ", label[row], " in row ", row, " is outside 0 to ", classes - 1));
      }
      const float* x = in + row * classes;
      float* p = out + row * classes;
      const float largest = *std::max_element(x, x + classes);
      // The chosen logit is read first: probabilities may lie where the logits do.
      const float chosen = x[label[row]] - largest;
      double sum = 0;
      for (size_t c = 0; c < classes; ++c) {
        p[c] = std::exp(x[c] - largest);
        sum += p[c];
      }
      for (size_t c = 0; c < classes; ++c) p[c] = static_cast<float>(p[c] / sum);
      losses[row] = static_cast<float>(std::log(sum) - chosen);
    }
    StoreFloats(loss, arena, losses);
    StoreFloats(probabilities, arena, out);
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropyGradient(const program::v1::Ipu& ipu,
                                                          const Instruction& instruction) {
  const Operand probabilities = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss_gradient = Resolve(ipu, instruction.inputs(2)),
                logits_gradient = Resolve(ipu, instruction.outputs(0));
  const auto classes = static_cast<size_t>(probabilities.type.dims[1]);
  return [=](std::byte* arena) -> absl::Status {
    const float* p = ReadFloats(probabilities, arena, 0);
    const auto* label = labels.As<int32_t>(arena);
    const float* scale = ReadFloats(loss_gradient, arena, 1);
    float* out = WriteFloats(logits_gradient, arena, 2);
    for (size_t row = 0; row < labels.elements(); ++row) {
      for (size_t c = 0; c < classes; ++c) {
        const float target = static_cast<size_t>(label[row]) == c ? 1.0f : 0.0f;
        out[row * classes + c] = (p[row * classes + c] - target) * scale[row];
      }
    }
    StoreFloats(logits_gradient, arena, out);
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<KernelDef> LossKernels() {
  return {{Instruction::kSoftmaxCrossEntropy, PrepareSoftmaxCrossEntropy},
          {Instruction::kSoftmaxCrossEntropyGradient, PrepareSoftmaxCrossEntropyGradient}};
}

}  // namespace vpod::engine
