#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

// Probabilities of a row, which may lie where its logits do; its loss. Not-a-number in a logit is
// in all results.
float SoftmaxRow(const float* x, size_t label, size_t classes, float* p) {
  const float largest = *std::max_element(x, x + classes);
  const float chosen = x[label] - largest;
  double sum = 0;
  for (size_t c = 0; c < classes; ++c) {
    p[c] = std::exp(x[c] - largest);
    sum += p[c];
  }
  for (size_t c = 0; c < classes; ++c) p[c] = static_cast<float>(p[c] / sum);
  return static_cast<float>(std::log(sum) - chosen);
}

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropy(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const Operand logits = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss = Resolve(ipu, instruction.outputs(0)),
                probabilities = Resolve(ipu, instruction.outputs(1));
  const auto classes = static_cast<size_t>(logits.type.dims[1]);
  const Chunking rows = ChunkItems(labels.elements(), classes);
  MemoryPlan scratch;
  const FloatBlock logits_block(logits, rows.per_chunk * classes, scratch),
      loss_block(loss, rows.per_chunk, scratch),
      probabilities_block(probabilities, rows.per_chunk * classes, scratch);
  return OnePhase(
      rows.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) -> absl::Status {
        const size_t first = rows.begin(chunk), n = rows.size(chunk);
        const float* in = logits_block.Read(at, first * classes, n * classes);
        const auto* label = labels.As<int32_t>(at) + first;
        float* losses = loss_block.Write(at, first);
        float* out = probabilities_block.Write(at, first * classes);
        for (size_t row = 0; row < n; ++row) {
          if (label[row] < 0 || static_cast<size_t>(label[row]) >= classes) {
            return absl::InvalidArgumentError(absl::StrCat(
                "label ", label[row], " in row ", first + row, " is outside 0 to ", classes - 1));
          }
          losses[row] = SoftmaxRow(in + row * classes, static_cast<size_t>(label[row]), classes,
                                   out + row * classes);
        }
        loss_block.Store(at, first, n);
        probabilities_block.Store(at, first * classes, n * classes);
        return absl::OkStatus();
      });
}

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropyGradient(const program::v1::Ipu& ipu,
                                                          const Instruction& instruction) {
  const Operand probabilities = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss_gradient = Resolve(ipu, instruction.inputs(2)),
                logits_gradient = Resolve(ipu, instruction.outputs(0));
  const auto classes = static_cast<size_t>(probabilities.type.dims[1]);
  const Chunking rows = ChunkItems(labels.elements(), classes);
  MemoryPlan scratch;
  const FloatBlock probabilities_block(probabilities, rows.per_chunk * classes, scratch),
      scale_block(loss_gradient, rows.per_chunk, scratch),
      out_block(logits_gradient, rows.per_chunk * classes, scratch);
  return OnePhase(rows.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    const size_t first = rows.begin(chunk), n = rows.size(chunk);
    const float* p = probabilities_block.Read(at, first * classes, n * classes);
    const auto* label = labels.As<int32_t>(at) + first;
    const float* scale = scale_block.Read(at, first, n);
    float* out = out_block.Write(at, first * classes);
    for (size_t row = 0; row < n; ++row) {
      for (size_t c = 0; c < classes; ++c) {
        const float target = static_cast<size_t>(label[row]) == c ? 1.0f : 0.0f;
        out[row * classes + c] = (p[row * classes + c] - target) * scale[row];
      }
    }
    out_block.Store(at, first * classes, n * classes);
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<KernelDef> LossKernels() {
  return {{Instruction::kSoftmaxCrossEntropy, PrepareSoftmaxCrossEntropy},
          {Instruction::kSoftmaxCrossEntropyGradient, PrepareSoftmaxCrossEntropyGradient}};
}

}  // namespace vpod::engine
