#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/read_once.h"
#include "device/engine/kernels/vector_math.h"

namespace vpod::engine {
namespace {

// The target of a row: 1 at the label, 0 elsewhere, smoothed.
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
  bool Ignores(int32_t label) const { return ignores_ && label == ignored_; }
  // The label of a row, which is an index of a class or ignored.
  absl::StatusOr<int32_t> LabelAt(const Operand& labels, const Workspace& at, size_t row) const {
    const int32_t label = ReadOnce(labels.As<int32_t>(at) + row);
    if (Ignores(label) || (label >= 0 && static_cast<size_t>(label) < classes_)) return label;
    return absl::InvalidArgumentError(
        absl::StrCat("label ", label, " in row ", row, " is outside 0 to ", classes_ - 1));
  }
  // The loss of a row whose logits, less the largest, are `chosen` at the label; the sums of theirs
  // and of their exponentials.
  float Loss(double sum, double shifted, float chosen) const {
    double loss = Log(sum) - chosen;
    if (smoothing_ > 0) {
      const double average = Log(sum) - shifted / static_cast<double>(classes_);
      loss = (1 - smoothing_) * loss + smoothing_ * average;
    }
    return static_cast<float>(loss);
  }
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
    p[c] = x[c] - largest;
    shifted += p[c];
  }
  Exp(p, p, classes);
  for (size_t c = 0; c < classes; ++c) sum += p[c];
  for (size_t c = 0; c < classes; ++c) p[c] = static_cast<float>(p[c] / sum);
  return ignored ? 0 : target.Loss(sum, shifted, chosen);
}

// Calls visit(c, x[c] - largest, exp(x[c] - largest)) for each of n.
template <class Visit>
void ForExponentials(const float* x, size_t n, float largest, const Visit& visit) {
  constexpr size_t kBlock = 1024;
  float differences[kBlock], exponentials[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    for (size_t i = 0; i < count; ++i) differences[i] = x[first + i] - largest;
    Exp(differences, exponentials, count);
    for (size_t i = 0; i < count; ++i) visit(first + i, differences[i], exponentials[i]);
  }
}

// Classes that a chunk takes at a time; longer rows are cut.
constexpr size_t kMostClasses = size_t{1} << 20;

// The contribution of a part of a row.
struct PartOfRow {
  double sum = 0, shifted = 0;
  float largest = 0;
  float chosen = 0;  // in the first part: the label's logit, less the largest
};

// Rows of many classes, each in parts: first their largest logits, then their sums, then the
// probabilities.
struct LongRows {
  Operand labels;
  Target target;
  Chunking parts;
  size_t rows;
  FloatBlock logits, loss, probabilities;

  size_t classes() const { return target.classes(); }
  size_t shared_bytes() const { return rows * parts.chunks() * sizeof(PartOfRow); }
  // The parts of the row to which a chunk belongs.
  PartOfRow* Parts(const Workspace& at, size_t chunk) const {
    return reinterpret_cast<PartOfRow*>(at.shared) + chunk / parts.chunks() * parts.chunks();
  }
  absl::StatusOr<int32_t> LabelOf(const Workspace& at, size_t chunk) const {
    return target.LabelAt(labels, at, chunk / parts.chunks());
  }
  size_t FirstOf(size_t chunk) const {
    return chunk / parts.chunks() * classes() + parts.begin(chunk % parts.chunks());
  }
  size_t SizeOf(size_t chunk) const { return parts.size(chunk % parts.chunks()); }
  // In the order of the parts.
  float Largest(const Workspace& at, size_t chunk) const {
    const PartOfRow* row = Parts(at, chunk);
    float largest = row[0].largest;
    for (size_t part = 1; part < parts.chunks(); ++part)
      largest = std::max(largest, row[part].largest);
    return largest;
  }

  absl::Status FindLargest(const Workspace& at, size_t chunk) const {
    VPOD_RETURN_IF_ERROR(LabelOf(at, chunk).status());
    const size_t n = SizeOf(chunk);
    const float* x = logits.Read(at, FirstOf(chunk), n);
    Parts(at, chunk)[chunk % parts.chunks()].largest = *std::max_element(x, x + n);
    return absl::OkStatus();
  }

  absl::Status Sum(const Workspace& at, size_t chunk) const {
    const float largest = Largest(at, chunk);
    const size_t n = SizeOf(chunk);
    const float* x = logits.Read(at, FirstOf(chunk), n);
    double sum = 0, shifted = 0;
    ForExponentials(x, n, largest, [&](size_t, float difference, float exponential) {
      shifted += difference;
      sum += exponential;
    });
    PartOfRow& part = Parts(at, chunk)[chunk % parts.chunks()];
    part.sum = sum;
    part.shifted = shifted;
    // Now: the probabilities may lie where the logits do.
    VPOD_ASSIGN_OR_RETURN(const int32_t label, LabelOf(at, chunk));
    if (chunk % parts.chunks() != 0 || target.Ignores(label)) return absl::OkStatus();
    const size_t row = chunk / parts.chunks() * classes();
    part.chosen = *logits.Read(at, row + static_cast<size_t>(label), 1) - largest;
    return absl::OkStatus();
  }

  absl::Status Finish(const Workspace& at, size_t chunk) const {
    const float largest = Largest(at, chunk);
    double sum = 0, shifted = 0;
    for (size_t part = 0; part < parts.chunks(); ++part) {
      sum += Parts(at, chunk)[part].sum;
      shifted += Parts(at, chunk)[part].shifted;
    }
    const size_t n = SizeOf(chunk), row = chunk / parts.chunks();
    if (chunk % parts.chunks() == 0) {
      VPOD_ASSIGN_OR_RETURN(const int32_t label, LabelOf(at, chunk));
      const bool ignored = target.Ignores(label);
      *loss.Write(at, row) = ignored ? 0 : target.Loss(sum, shifted, Parts(at, chunk)[0].chosen);
      loss.Store(at, row, 1);
    }
    const float* x = logits.Read(at, FirstOf(chunk), n);
    float* p = probabilities.Write(at, FirstOf(chunk));
    ForExponentials(x, n, largest, [&](size_t c, float, float exponential) {
      p[c] = static_cast<float>(exponential / sum);
    });
    probabilities.Store(at, FirstOf(chunk), n);
    return absl::OkStatus();
  }
};

Kernel SoftmaxOfLongRows(const Operand& logits, const Operand& labels, const Operand& loss,
                         const Operand& probabilities, const Target& target) {
  MemoryPlan scratch;
  const LongRows op{.labels = labels,
                    .target = target,
                    .parts = {target.classes(), kMostClasses},
                    .rows = labels.elements(),
                    .logits = FloatBlock(logits, kMostClasses, scratch),
                    .loss = FloatBlock(loss, 1, scratch),
                    .probabilities = FloatBlock(probabilities, kMostClasses, scratch)};
  Kernel kernel;
  const auto add = [&](absl::Status (LongRows::*run)(const Workspace&, size_t) const) {
    kernel.phases.push_back(
        {.chunks = op.rows * op.parts.chunks(),
         .run = [op, run](const Workspace& at, size_t chunk) { return (op.*run)(at, chunk); },
         .is_long = true,
         .operations = kMostClasses});
  };
  add(&LongRows::FindLargest);
  add(&LongRows::Sum);
  add(&LongRows::Finish);
  kernel.shared_bytes = op.shared_bytes();
  kernel.scratch_bytes = scratch.bytes();
  return kernel;
}

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropy(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const Operand logits = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss = ResolveOutput(ipu, instruction, 0),
                probabilities = ResolveOutput(ipu, instruction, 1);
  const auto classes = static_cast<size_t>(logits.type.dims[1]);
  const Target target(instruction.softmax_cross_entropy(), classes);
  if (classes > kMostClasses) return SoftmaxOfLongRows(logits, labels, loss, probabilities, target);
  const Chunking rows = ChunkItems(labels.elements(), classes);
  MemoryPlan scratch;
  const FloatBlock logits_block(logits, rows.per_chunk * classes, scratch),
      loss_block(loss, rows.per_chunk, scratch),
      probabilities_block(probabilities, rows.per_chunk * classes, scratch);
  Kernel kernel = OnePhase(
      rows.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) -> absl::Status {
        const size_t first = rows.begin(chunk), n = rows.size(chunk);
        const float* in = logits_block.Read(at, first * classes, n * classes);
        float* losses = loss_block.Write(at, first);
        float* out = probabilities_block.Write(at, first * classes);
        for (size_t row = 0; row < n; ++row) {
          VPOD_ASSIGN_OR_RETURN(const int32_t label, target.LabelAt(labels, at, first + row));
          losses[row] = SoftmaxRow(in + row * classes, label, target, out + row * classes);
        }
        loss_block.Store(at, first, n);
        probabilities_block.Store(at, first * classes, n * classes);
        return absl::OkStatus();
      });
  kernel.phases[0].operations = static_cast<double>(rows.per_chunk * classes);
  return kernel;
}

absl::StatusOr<Kernel> PrepareSoftmaxCrossEntropyGradient(const program::v1::Ipu& ipu,
                                                          const Instruction& instruction) {
  const Operand probabilities = Resolve(ipu, instruction.inputs(0)),
                labels = Resolve(ipu, instruction.inputs(1)),
                loss_gradient = Resolve(ipu, instruction.inputs(2)),
                logits_gradient = ResolveOutput(ipu, instruction, 0);
  const auto classes = static_cast<size_t>(probabilities.type.dims[1]);
  const Target target(instruction.softmax_cross_entropy_gradient(), classes);
  // Chunk c takes part c % parts of some rows; rows in several parts are one a chunk.
  const Chunking rows = ChunkItems(labels.elements(), classes),
                 parts{classes, std::min(classes, kMostClasses)};
  const size_t elements = rows.per_chunk * parts.per_chunk;
  MemoryPlan scratch;
  const FloatBlock probabilities_block(probabilities, elements, scratch),
      scale_block(loss_gradient, rows.per_chunk, scratch),
      out_block(logits_gradient, elements, scratch);
  Kernel kernel = OnePhase(
      rows.chunks() * parts.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
        const size_t part = chunk % parts.chunks(), first = rows.begin(chunk / parts.chunks()),
                     n = rows.size(chunk / parts.chunks()), from = parts.begin(part),
                     count = parts.size(part), begin = first * classes + from;
        const float* p = probabilities_block.Read(at, begin, n * count);
        const float* scale = scale_block.Read(at, first, n);
        float* out = out_block.Write(at, begin);
        for (size_t row = 0; row < n; ++row) {
          // Any other label than one of a class has no element.
          const int32_t label = ReadOnce(labels.As<int32_t>(at) + first + row);
          const bool ignored = target.Ignores(label);
          for (size_t c = 0; c < count; ++c) {
            const size_t i = row * count + c;
            out[i] = ignored ? 0 : (p[i] - target.Of(from + c, label)) * scale[row];
          }
        }
        out_block.Store(at, begin, n * count);
        return absl::OkStatus();
      });
  kernel.phases[0].operations = static_cast<double>(elements);
  return kernel;
}

}  // namespace

std::vector<KernelDef> LossKernels() {
  return {{Instruction::kSoftmaxCrossEntropy, PrepareSoftmaxCrossEntropy},
          {Instruction::kSoftmaxCrossEntropyGradient, PrepareSoftmaxCrossEntropyGradient}};
}

}  // namespace vpod::engine
