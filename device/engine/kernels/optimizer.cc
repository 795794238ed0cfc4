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
  return [=](std::byte* arena) {
    AddWide(accumulator.As<double>(arena), ReadFloats(gradient, arena, 0), gradient.elements());
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareSgd(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Sgd& op = instruction.sgd();
  const bool has_velocity = instruction.inputs_size() > 3;
  const Operand weights = Resolve(ipu, instruction.inputs(0)),
                gradient = Resolve(ipu, instruction.inputs(1)),
                learning_rate = Resolve(ipu, instruction.inputs(2)),
                velocity = has_velocity ? Resolve(ipu, instruction.inputs(3)) : Operand();
  const SgdConstants constants{op.momentum(), 1 - op.dampening(), op.weight_decay(),
                               op.gradient_scale(), op.nesterov()};
  return [=](std::byte* arena) {
    // Float16 weights are read into scratch, updated there and rounded back.
    auto* w = const_cast<float*>(ReadFloats(weights, arena, 0));
    const float* g = ReadFloats(gradient, arena, 1);
    const float rate = *learning_rate.As<float>(arena);
    if (has_velocity) {
      auto* v = const_cast<float*>(ReadFloats(velocity, arena, 2));
      SgdMomentum(w, g, v, rate, constants, weights.elements());
      StoreFloats(velocity, arena, v);
    } else {
      SgdPlain(w, g, rate, constants, weights.elements());
    }
    StoreFloats(weights, arena, w);
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<KernelDef> OptimizerKernels() {
  return {{Instruction::kAccumulate, PrepareAccumulate}, {Instruction::kSgd, PrepareSgd}};
}

}  // namespace vpod::engine
