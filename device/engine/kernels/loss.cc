#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

// What a row is compared with: 1 at the label, 0 elsewhere, smoothed.
class Target {
 public:
  template <class CrossEntropy>
  Target(const CrossEntropy& op, size_t classes)
      : classes_(classes),
        share_(op.label_smoothing() / static_cast<float>(classes)),
        label_share_(1 - op.label_smoothing() + share_),
        smoothing_(op.label_smoothing()),
        ignores_(op.has_ignored_label()),
        ignored_(op.ignored_label()) {}

  size_t classes() const { return classes_; }
  float smoothing() const { return smoothing_; }
  bool Ignores(int32_t label) const { return ignores_ && label == ignored_; }
  float Of(size_t c, int32_t label) const {
    return static_cast<size_t>(label) == c ? label_share_ : share_;
  }

 private:
  size_t classes_;
  float share_, label_share_, smoothing_;
  bool ignores_;
  int32_t ignored_;
};

// Probabilities of a row, which may lie where its logits do; its loss. Not-a-number in a logit is
// in all results.
float SoftmaxRow(const float* x, int32_t label, const Target& target, float* p) {
  const size_t classes = target.classes();
  const float largest = *std::max_element(x, x + classes);
  const bool ignored = target.Ignores(label);
  const float chosen = ignored ? 0 : x[label] - largest;
  double sum = 0, shifted = 0;
  for (size_t c = 0; c < classes; ++c) {
    const float difference = x[c] - largest;
    shifted += difference;
    p[c] = std::exp(difference);
    sum += p[c];
  }
  for (size_t c = 0; c < classes; ++c) p[c] = static_cast<float>(p[c] / sum);
  if (ignored) return 0;
  double loss = std::log(sum) - chosen;
  if (target.smoothing() > 0) {
    const double average = std::log(sum) - shifted / static_cast<double>(classes);
    loss = (1 - target.smoothing()) * loss + target.smoothing() * average;
  }
  return static_cast<float>(loss);
}

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropy(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const Operand logits = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss = ResolveOutput(ipu, instruction, 0),
                probabilities = ResolveOutput(ipu, instruction, 1);
  const auto classes = static_cast<size_t>(logits.type.dims[1]);
  const Target target(instruction.softmax_cross_entropy(), classes);
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
          const bool fits = label[row] >= 0 && static_cast<size_t>(label[row]) < classes;
          if (!fits && !target.Ignores(label[row])) {
            return absl::InvalidArgumentError(absl::StrCat(
                "label ", label[row], " in row ", first + row, " is outside 0 to ", classes - 1));
          }
          losses[row] = SoftmaxRow(in + row * classes, label[row], target, out + row * classes);
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
                logits_gradient = ResolveOutput(ipu, instruction, 0);
  const auto classes = static_cast<size_t>(probabilities.type.dims[1]);
  const Target target(instruction.softmax_cross_entropy_gradient(), classes);
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
      const bool ignored = target.Ignores(label[row]);
      for (size_t c = 0; c < classes; ++c) {
        const size_t i = row * classes + c;
        out[i] = ignored ? 0 : (p[i] - target.Of(c, label[row])) * scale[row];
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
