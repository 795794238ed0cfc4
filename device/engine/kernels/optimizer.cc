#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/vector_math.h"

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

// --- Updates of weights ---

struct SgdConstants {
  float rate, weight_decay, momentum, one_minus_dampening, gradient_factor;
  bool nesterov;
};

VPOD_SIMD void SgdPlain(float* w, const float* g, const SgdConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i)
    w[i] -= k.rate * (k.gradient_factor * g[i] + k.weight_decay * w[i]);
}

VPOD_SIMD void SgdMomentum(float* w, const float* g, float* v, const SgdConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i] + k.weight_decay * w[i];
    v[i] = k.momentum * v[i] + k.one_minus_dampening * u;
    w[i] -= k.rate * (k.nesterov ? u + k.momentum * v[i] : v[i]);
  }
}

struct AdamConstants {
  float weight_decay, kept, beta1, beta2, epsilon, gradient_factor;
  float step_size, root_of_correction;
};

// `kept` is what decoupled weight decay leaves of the weights; then weight_decay is 0. `largest` is
// v itself, or another tensor that holds the largest v so far.
VPOD_SIMD void AdamRow(float* w, const float* g, float* m, float* v, float* largest,
                       const AdamConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float kept = w[i] * k.kept;
    const float u = k.gradient_factor * g[i] + k.weight_decay * kept;
    m[i] = k.beta1 * m[i] + (1 - k.beta1) * u;
    v[i] = k.beta2 * v[i] + (1 - k.beta2) * u * u;
    largest[i] = v[i] > largest[i] || v[i] != v[i] ? v[i] : largest[i];
    w[i] = kept - k.step_size * (m[i] / (std::sqrt(largest[i]) / k.root_of_correction + k.epsilon));
  }
}

// The operands that all optimisers have.
class Optimizer {
 public:
  static constexpr int kHyperParameters = 2, kLossScale = 3, kStep = 4, kState = 5;  // inputs

  Optimizer(const program::v1::Ipu& ipu, const Instruction& instruction)
      : hyper_parameters_(Resolve(ipu, instruction.inputs(kHyperParameters))),
        loss_scale_(Resolve(ipu, instruction.inputs(kLossScale))),
        elements_(ChunkItems(Resolve(ipu, instruction.inputs(0)).elements(), 1)) {
    const auto block = [&](int input) {
      return FloatBlock(Resolve(ipu, instruction.inputs(input)), elements_.per_chunk, scratch_);
    };
    weights_ = FloatBlock(ResolveOutput(ipu, instruction, 0), elements_.per_chunk, scratch_);
    gradient_ = block(1);
    if (instruction.inputs_size() > kStep) step_ = Resolve(ipu, instruction.inputs(kStep));
    for (int i = kState; i < instruction.inputs_size(); ++i) state_.push_back(block(i));
  }

  const float* HyperParameters(const Workspace& at) const {
    return hyper_parameters_.As<float>(at);
  }
  double Step(const Workspace& at) const { return *step_.As<float>(at); }

  // The factor of gradients. InvalidArgument for a bad loss scale.
  template <class Attributes>
  absl::StatusOr<float> GradientFactor(const Attributes& op, const Workspace& at) const {
    const float scale = *loss_scale_.As<float>(at);
    if (!(scale > 0 && std::isfinite(scale))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the loss scale is ", scale, ", must be above 0 and finite"));
    }
    const float factor = op.gradient_scale() / scale;
    return op.maximize() ? -factor : factor;
  }

  // `update(at, weights, gradient, state, n)` changes the weights and each state of a range.
  template <class Update>
  Kernel Make(Update update) const {
    const Optimizer self = *this;
    return OnePhase(
        elements_.chunks(), scratch_.bytes(),
        [self, update](const Workspace& at, size_t chunk) -> absl::Status {
          const size_t first = self.elements_.begin(chunk), n = self.elements_.size(chunk);
          float* state[3] = {};
          for (size_t i = 0; i < self.state_.size(); ++i)
            state[i] = self.state_[i].ReadWrite(at, first, n);
          const absl::Status status = update(self, at, self.weights_.ReadWrite(at, first, n),
                                             self.gradient_.Read(at, first, n), state, n);
          if (!status.ok()) return status;
          self.weights_.Store(at, first, n);
          return absl::OkStatus();
        });
  }

 private:
  const Operand hyper_parameters_, loss_scale_;
  const Chunking elements_;
  Operand step_;
  MemoryPlan scratch_;
  FloatBlock weights_, gradient_;
  std::vector<FloatBlock> state_;  // of float32: where it lies
};

absl::StatusOr<Kernel> PrepareSgd(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Sgd op = instruction.sgd();
  return Optimizer(ipu, instruction)
      .Make([op](const Optimizer& optimizer, const Workspace& at, float* w, const float* g,
                 float** state, size_t n) -> absl::Status {
        const absl::StatusOr<float> factor = optimizer.GradientFactor(op, at);
        if (!factor.ok()) return factor.status();
        const float* hyper = optimizer.HyperParameters(at);
        SgdConstants k{.rate = hyper[0],
                       .weight_decay = hyper[1],
                       .momentum = hyper[2],
                       .one_minus_dampening = 1 - hyper[3],
                       .gradient_factor = *factor,
                       .nesterov = op.nesterov()};
        if (state[0] == nullptr) {
          SgdPlain(w, g, k, n);
        } else {
          if (optimizer.Step(at) == 1) {
            // As in PyTorch, the first velocity is the gradient, without dampening.
            std::fill_n(state[0], n, 0.0f);
            k.one_minus_dampening = 1;
          }
          SgdMomentum(w, g, state[0], k, n);
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<Kernel> PrepareAdam(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Adam op = instruction.adam();
  return Optimizer(ipu, instruction)
      .Make([op](const Optimizer& optimizer, const Workspace& at, float* w, const float* g,
                 float** state, size_t n) -> absl::Status {
        const absl::StatusOr<float> factor = optimizer.GradientFactor(op, at);
        if (!factor.ok()) return factor.status();
        const float* hyper = optimizer.HyperParameters(at);
        const double rate = hyper[0], weight_decay = hyper[1], beta1 = hyper[2], beta2 = hyper[3];
        const double step = optimizer.Step(at);
        const bool decoupled = op.decoupled_weight_decay();
        const AdamConstants k{
            .weight_decay = decoupled ? 0 : hyper[1],
            .kept = decoupled ? static_cast<float>(1 - rate * weight_decay) : 1,
            .beta1 = hyper[2],
            .beta2 = hyper[3],
            .epsilon = hyper[4],
            .gradient_factor = *factor,
            .step_size = static_cast<float>(rate / (1 - Power(beta1, step))),
            .root_of_correction = static_cast<float>(std::sqrt(1 - Power(beta2, step)))};
        AdamRow(w, g, state[0], state[1], state[2] == nullptr ? state[1] : state[2], k, n);
        return absl::OkStatus();
      });
}

// --- Loss scale ---

VPOD_SIMD bool AreFinite(const float* x, size_t n) {
  int finite = 1;
  for (size_t i = 0; i < n; ++i) finite &= x[i] - x[i] == 0;
  return finite != 0;
}

absl::StatusOr<Kernel> PrepareAllFinite(const program::v1::Ipu& ipu,
                                        const Instruction& instruction) {
  Kernel kernel;
  const Operand output = Resolve(ipu, instruction.outputs(0));
  size_t chunks = 0;
  // The memory of the largest chunk serves all inputs.
  for (uint32_t tensor : instruction.inputs()) {
    const Operand input = Resolve(ipu, tensor);
    const Chunking elements = ChunkItems(input.elements(), 1);
    MemoryPlan scratch;
    const FloatBlock block(input, elements.per_chunk, scratch);
    kernel.scratch_bytes = std::max(kernel.scratch_bytes, scratch.bytes());
    const size_t before = chunks;
    kernel.phases.push_back({elements.chunks(), [=](const Workspace& at, size_t chunk) {
                               const size_t first = elements.begin(chunk), n = elements.size(chunk);
                               at.shared[before + chunk] =
                                   std::byte{AreFinite(block.Read(at, first, n), n)};
                               return absl::OkStatus();
                             }});
    chunks += elements.chunks();
  }
  kernel.shared_bytes = chunks;
  kernel.phases.push_back({1, [=](const Workspace& at, size_t) {
                             const bool finite =
                                 std::all_of(at.shared, at.shared + chunks,
                                             [](std::byte flag) { return flag != std::byte{0}; });
                             *output.As<uint8_t>(at) = finite ? 1 : 0;
                             return absl::OkStatus();
                           }});
  return kernel;
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
    } else if (static_cast<uint32_t>(++steps) >= op.interval()) {
      // A scale that would overflow stays.
      if (std::isfinite(s * op.growth())) s *= op.growth();
      steps = 0;
    }
    if (s > 0 && std::isfinite(s)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the loss scale became ", s, ", must be above 0 and finite"));
  });
}

}  // namespace

std::vector<KernelDef> OptimizerKernels() {
  return {{Instruction::kAccumulate, PrepareAccumulate},
          {Instruction::kSgd, PrepareSgd},
          {Instruction::kAdam, PrepareAdam},
          {Instruction::kAllFinite, PrepareAllFinite},
          {Instruction::kUpdateLossScale, PrepareUpdateLossScale}};
}

}  // namespace vpod::engine
