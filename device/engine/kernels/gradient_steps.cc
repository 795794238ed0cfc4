// Kernels that work on gradients between the backward pass and the update of the weights.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/row_sums.h"

namespace vpod::engine {
namespace {

VPOD_SIMD void AddWide(double* accumulator, const float* gradient, size_t n) {
  for (size_t i = 0; i < n; ++i) accumulator[i] += gradient[i];
}

absl::StatusOr<Kernel> PrepareAccumulate(const program::v1::Ipu& ipu,
                                         const Instruction& instruction) {
  const Operand accumulator = Resolve(ipu, instruction.inputs(0)),
                gradient = Resolve(ipu, instruction.inputs(1));
  const Chunking elements = ChunkItems(gradient.elements(), 1);
  MemoryPlan scratch;
  const FloatBlock gradient_block(gradient, elements.per_chunk, scratch);
  return OnePhase(elements.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    const size_t first = elements.begin(chunk), n = elements.size(chunk);
    AddWide(accumulator.As<double>(at) + first, gradient_block.Read(at, first, n), n);
    return absl::OkStatus();
  });
}

// Measures some float tensors in blocks, whose results `finish` combines: `measure(floats, n)`
// gives the result of a block, and `finish(at, results, n)` takes those of all, in order.
template <class Result, class Measure, class Finish>
Kernel OverAll(const program::v1::Ipu& ipu, const Instruction& instruction, Measure measure,
               Finish finish) {
  Kernel kernel;
  size_t blocks = 0;
  // The memory of the largest chunk serves all inputs.
  for (uint32_t tensor : instruction.inputs()) {
    const Operand input = Resolve(ipu, tensor);
    const Chunking elements = ChunkNormBlocks(input.elements());
    MemoryPlan scratch;
    const FloatBlock floats(input, elements.per_chunk, scratch);
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, scratch.bytes());
    const size_t before = blocks;
    kernel.phases.push_back({elements.chunks(), [=](const Workspace& at, size_t chunk) {
                               const size_t first = elements.begin(chunk), n = elements.size(chunk);
                               const float* x = floats.Read(at, first, n);
                               auto* results = reinterpret_cast<Result*>(at.shared) + before +
                                               first / kNormBlock;
                               for (size_t i = 0; i < n; i += kNormBlock)
                                 *results++ = measure(x + i, std::min(kNormBlock, n - i));
                               return absl::OkStatus();
                             }});
    blocks += NormBlocks(input.elements());
  }
  kernel.shared_bytes = blocks * sizeof(Result);
  kernel.phases.push_back({1, [=](const Workspace& at, size_t) {
                             finish(at, reinterpret_cast<const Result*>(at.shared), blocks);
                             return absl::OkStatus();
                           }});
  return kernel;
}

VPOD_SIMD bool AreFinite(const float* x, size_t n) {
  int finite = 1;
  for (size_t i = 0; i < n; ++i) finite &= x[i] - x[i] == 0;
  return finite != 0;
}

absl::StatusOr<Kernel> PrepareAllFinite(const program::v1::Ipu& ipu,
                                        const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  return OverAll<uint8_t>(ipu, instruction, AreFinite,
                          [output](const Workspace& at, const uint8_t* finite, size_t n) {
                            *output.As<uint8_t>(at) =
                                std::all_of(finite, finite + n, [](uint8_t each) { return each; });
                          });
}

absl::StatusOr<Kernel> PrepareNorm(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand output = Resolve(ipu, instruction.outputs(0));
  return OverAll<double>(
      ipu, instruction, [](const float* x, size_t n) { return SumOfProducts(x, x, n); },
      [output](const Workspace& at, const double* sums, size_t n) {
        double sum = 0;
        for (size_t i = 0; i < n; ++i) sum += sums[i];
        *output.As<float>(at) = static_cast<float>(std::sqrt(sum));
      });
}

absl::StatusOr<Kernel> PrepareUpdateLossScale(const program::v1::Ipu& ipu,
                                              const Instruction& instruction) {
  const program::v1::UpdateLossScale op = instruction.update_loss_scale();
  const Operand scale = Resolve(ipu, instruction.inputs(0)),
                count = Resolve(ipu, instruction.inputs(1)),
                finite = Resolve(ipu, instruction.inputs(2));
  return OnePhase(1, 0, [=](const Workspace& at, size_t) -> absl::Status {
    float& s = *scale.As<float>(at);
    int32_t& steps = *count.As<int32_t>(at);
    if (*finite.As<uint8_t>(at) == 0) {
      s *= op.backoff();
      steps = 0;
    } else if (int64_t{steps} + 1 >= int64_t{op.interval()}) {
      // A scale that would overflow stays.
      if (std::isfinite(s * op.growth())) s *= op.growth();
      steps = 0;
    } else if (steps < std::numeric_limits<int32_t>::max()) {
      ++steps;
    }
    if (s > 0 && std::isfinite(s)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the loss scale became ", s, ", must be above 0 and finite"));
  });
}

}  // namespace

std::vector<KernelDef> GradientKernels() {
  return {{Instruction::kAccumulate, PrepareAccumulate},
          {Instruction::kAllFinite, PrepareAllFinite},
          {Instruction::kNorm, PrepareNorm},
          {Instruction::kUpdateLossScale, PrepareUpdateLossScale}};
}

}  // namespace vpod::engine
