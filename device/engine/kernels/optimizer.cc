#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

VPOD_SIMD void AddWide(double* accumulator, const float* gradient, size_t n) {
  for (size_t i = 0; i < n; ++i) accumulator[i] += gradient[i];
}

struct SgdConstants {
  float momentum, one_minus_dampening, weight_decay, gradient_scale;
  bool nesterov;
};

VPOD_SIMD void SgdPlain(float* w, const float* g, float rate, SgdConstants k, size_t n) {
  for (size_t i = 0; i < n; ++i) w[i] -= rate * (k.gradient_scale * g[i] + k.weight_decay * w[i]);
}

VPOD_SIMD void SgdMomentum(float* w, const float* g, float* v, float rate, SgdConstants k,
                           size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_scale * g[i] + k.weight_decay * w[i];
    v[i] = k.momentum * v[i] + k.one_minus_dampening * u;
    w[i] -= rate * (k.nesterov ? u + k.momentum * v[i] : v[i]);
  }
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

absl::StatusOr<Kernel> PrepareSgd(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Sgd& op = instruction.sgd();
  const bool has_velocity = instruction.inputs_size() > 3;
  const Operand weights = Resolve(ipu, instruction.inputs(0)),
                learning_rate = Resolve(ipu, instruction.inputs(2));
  const SgdConstants constants{op.momentum(), 1 - op.dampening(), op.weight_decay(),
                               op.gradient_scale(), op.nesterov()};
  const Chunking elements = ChunkItems(weights.elements(), 1);
  MemoryPlan scratch;
  const FloatBlock weights_block(weights, elements.per_chunk, scratch),
      gradient_block(Resolve(ipu, instruction.inputs(1)), elements.per_chunk, scratch);
  const FloatBlock velocity_block =
      has_velocity ? FloatBlock(Resolve(ipu, instruction.inputs(3)), elements.per_chunk, scratch)
                   : FloatBlock();
  return OnePhase(elements.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    const size_t first = elements.begin(chunk), n = elements.size(chunk);
    float* w = weights_block.ReadWrite(at, first, n);
    const float* g = gradient_block.Read(at, first, n);
    const float rate = *learning_rate.As<float>(at);
    if (has_velocity) {
      float* v = velocity_block.ReadWrite(at, first, n);
      SgdMomentum(w, g, v, rate, constants, n);
      velocity_block.Store(at, first, n);
    } else {
      SgdPlain(w, g, rate, constants, n);
    }
    weights_block.Store(at, first, n);
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<KernelDef> OptimizerKernels() {
  return {{Instruction::kAccumulate, PrepareAccumulate}, {Instruction::kSgd, PrepareSgd}};
}

}  // namespace vpod::engine
