#include "device/engine/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/base/simd.h"
#include "device/engine/kernels/polynomial.h"
#include "device/engine/kernels/row_sums.h"
#include "device/engine/kernels/vector_math.h"

namespace vpod::engine {
namespace {

using Block = Optimizer::Block;
using Squares = Optimizer::Squares;

struct SgdConstants {
  float rate, weight_decay, momentum, one_minus_dampening, gradient_factor;
  bool nesterov, is_first;
};

VPOD_SIMD void SgdPlain(float* w, const float* g, const SgdConstants& k, size_t n) {
  const float rate = k.rate * k.one_minus_dampening;
  for (size_t i = 0; i < n; ++i) w[i] -= rate * (k.gradient_factor * g[i] + k.weight_decay * w[i]);
}

VPOD_SIMD void SgdVelocity(const float* w, const float* g, float* v, const SgdConstants& k,
                           size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i] + k.weight_decay * w[i];
    v[i] = k.momentum * v[i] + k.one_minus_dampening * u;
  }
}

VPOD_SIMD void SgdStep(float* w, const float* g, const float* v, const SgdConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i] + k.weight_decay * w[i];
    w[i] -= k.rate * (k.nesterov ? u + k.momentum * v[i] : v[i]);
  }
}

// --- SGD whose velocity is prepared for the next update ---

struct CombinedConstants {
  float gradient_factor, step_size, momentum;
  float decay;  // what weights add to the next velocity
  bool is_first;
};

VPOD_SIMD void SgdCombined(float* w, const float* g, float* v, const CombinedConstants& k,
                           size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float before = k.is_first ? k.decay * w[i] : v[i],
                now = before + k.gradient_factor * g[i];
    w[i] -= k.step_size * now;
    v[i] = k.momentum * now + k.decay * w[i];
  }
}

Kernel PrepareCombined(const Optimizer& prepared, const program::v1::Sgd& op) {
  return prepared.Make(
      [op](const Optimizer& optimizer, const Workspace& at) -> absl::StatusOr<CombinedConstants> {
        VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
        const float* hyper = optimizer.HyperParameters(at);
        const float scale = hyper[4], share = (1 - hyper[3]) * scale;
        return CombinedConstants{.gradient_factor = share * factor,
                                 .step_size = hyper[0] / scale,
                                 .momentum = hyper[2],
                                 .decay = share * hyper[1],
                                 .is_first = optimizer.Step(at) == 1};
      },
      Optimizer::KeepState(),
      [](const CombinedConstants& k, const Block& block) {
        SgdCombined(block.weights, block.gradient, block.states[0], k, block.n);
      });
}

absl::StatusOr<Kernel> PrepareSgd(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Sgd op = instruction.sgd();
  const bool has_velocity = instruction.outputs_size() > 1;
  if (op.combined() && has_velocity) return PrepareCombined(Optimizer(ipu, instruction), op);
  const auto constants = [op, has_velocity](const Optimizer& optimizer,
                                            const Workspace& at) -> absl::StatusOr<SgdConstants> {
    VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
    const float* hyper = optimizer.HyperParameters(at);
    const bool is_first = has_velocity && optimizer.Step(at) == 1;
    return SgdConstants{.rate = hyper[0],
                        .weight_decay = hyper[1],
                        .momentum = hyper[2],
                        // As in PyTorch, the first velocity is the gradient, without dampening.
                        .one_minus_dampening = is_first ? 1 : 1 - hyper[3],
                        .gradient_factor = factor,
                        .nesterov = op.nesterov(),
                        .is_first = is_first};
  };
  if (!has_velocity) {
    return Optimizer(ipu, instruction)
        .Make(constants, Optimizer::KeepState(), [](const SgdConstants& k, const Block& block) {
          SgdPlain(block.weights, block.gradient, k, block.n);
        });
  }
  return Optimizer(ipu, instruction)
      .Make(
          constants,
          [](const SgdConstants& k, const Block& block) {
            if (k.is_first) std::fill_n(block.states[0], block.n, 0.0f);
            SgdVelocity(block.weights, block.gradient, block.states[0], k, block.n);
          },
          [](const SgdConstants& k, const Block& block) {
            SgdStep(block.weights, block.gradient, block.states[0], k, block.n);
          });
}

struct AdamConstants {
  float weight_decay, kept, beta1, beta2, epsilon, gradient_factor;
  float step_size, root_of_correction;
};

// `kept` is what decoupled weight decay leaves of the weights; then weight_decay is 0.
VPOD_SIMD void AdamMoments(const float* w, const float* g, float* m, float* v,
                           const AdamConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i] + k.weight_decay * (w[i] * k.kept);
    m[i] = k.beta1 * m[i] + (1 - k.beta1) * u;
    v[i] = k.beta2 * v[i] + (1 - k.beta2) * u * u;
  }
}

VPOD_SIMD void Largest(const float* v, float* largest, size_t n) {
  for (size_t i = 0; i < n; ++i) largest[i] = v[i] > largest[i] || v[i] != v[i] ? v[i] : largest[i];
}

VPOD_SIMD void AdamStep(float* w, const float* m, const float* v, const AdamConstants& k,
                        size_t n) {
  for (size_t i = 0; i < n; ++i) {
    w[i] =
        w[i] * k.kept - k.step_size * (m[i] / (std::sqrt(v[i]) / k.root_of_correction + k.epsilon));
  }
}

absl::StatusOr<Kernel> PrepareAdam(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Adam op = instruction.adam();
  return Optimizer(ipu, instruction)
      .Make(
          [op](const Optimizer& optimizer, const Workspace& at) -> absl::StatusOr<AdamConstants> {
            VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
            const float* hyper = optimizer.HyperParameters(at);
            const double rate = hyper[0], weight_decay = hyper[1], beta1 = hyper[2],
                         beta2 = hyper[3], step = optimizer.Step(at);
            const bool decoupled = op.decoupled_weight_decay();
            return AdamConstants{
                .weight_decay = decoupled ? 0 : hyper[1],
                .kept = decoupled ? static_cast<float>(1 - rate * weight_decay) : 1,
                .beta1 = hyper[2],
                .beta2 = hyper[3],
                .epsilon = hyper[4],
                .gradient_factor = factor,
                .step_size = static_cast<float>(rate / (1 - Power(beta1, step))),
                .root_of_correction = static_cast<float>(std::sqrt(1 - Power(beta2, step)))};
          },
          [](const AdamConstants& k, const Block& block) {
            const auto [m, v, largest] = block.states;
            AdamMoments(block.weights, block.gradient, m, v, k, block.n);
            if (largest != nullptr) Largest(v, largest, block.n);
          },
          [](const AdamConstants& k, const Block& block) {
            const auto [m, v, largest] = block.states;
            AdamStep(block.weights, m, largest != nullptr ? largest : v, k, block.n);
          });
}

struct RmsPropConstants {
  float weight_decay, alpha, momentum, rate, gradient_factor;
  float epsilon_inside = 0, epsilon_outside = 0;  // of the root
  float velocity_rate = 1;                        // what velocities are built of steps with
};

// The step of an element before its learning rate; its mean is 0 unless RMSprop is centered.
VPOD_INLINE float RmsPropStepOf(float w, float g, float squares, float mean,
                                const RmsPropConstants& k) {
  const float u = k.gradient_factor * g + k.weight_decay * w;
  return u / (std::sqrt(squares - mean * mean + k.epsilon_inside) + k.epsilon_outside);
}

// `means` and `velocity` may be null.
VPOD_SIMD void RmsPropState(const float* w, const float* g, float* squares, float* means,
                            float* velocity, const RmsPropConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i] + k.weight_decay * w[i];
    squares[i] = k.alpha * squares[i] + (1 - k.alpha) * u * u;
    float mean = 0;
    if (means != nullptr) mean = means[i] = k.alpha * means[i] + (1 - k.alpha) * u;
    if (velocity != nullptr) {
      velocity[i] = k.momentum * velocity[i] +
                    k.velocity_rate * RmsPropStepOf(w[i], g[i], squares[i], mean, k);
    }
  }
}

VPOD_SIMD void RmsPropStep(float* w, const float* g, const float* squares, const float* means,
                           const RmsPropConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float mean = means != nullptr ? means[i] : 0;
    w[i] -= k.rate * RmsPropStepOf(w[i], g[i], squares[i], mean, k);
  }
}

VPOD_SIMD void SubtractScaled(float* w, const float* step, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) w[i] -= factor * step[i];
}

absl::StatusOr<Kernel> PrepareRmsProp(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::RmsProp op = instruction.rms_prop();
  struct States {
    float *squares, *means, *velocity;
  };
  const auto states_of = [op](const Block& block) -> States {
    return {block.states[0], op.centered() ? block.states[1] : nullptr,
            op.with_momentum() ? block.states[op.centered() ? 2 : 1] : nullptr};
  };
  return Optimizer(ipu, instruction)
      .Make(
          [op](const Optimizer& optimizer,
               const Workspace& at) -> absl::StatusOr<RmsPropConstants> {
            VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
            const float* hyper = optimizer.HyperParameters(at);
            RmsPropConstants k{.weight_decay = hyper[1],
                               .alpha = hyper[2],
                               .momentum = hyper[4],
                               .rate = hyper[0],
                               .gradient_factor = factor};
            (op.tensorflow() ? k.epsilon_inside : k.epsilon_outside) = hyper[3];
            if (op.tensorflow() && op.with_momentum()) std::swap(k.rate, k.velocity_rate);
            return k;
          },
          [states_of](const RmsPropConstants& k, const Block& block) {
            const States to = states_of(block);
            RmsPropState(block.weights, block.gradient, to.squares, to.means, to.velocity, k,
                         block.n);
          },
          [states_of](const RmsPropConstants& k, const Block& block) {
            const States of = states_of(block);
            if (of.velocity != nullptr) {
              SubtractScaled(block.weights, of.velocity, k.rate, block.n);
            } else {
              RmsPropStep(block.weights, block.gradient, of.squares, of.means, k, block.n);
            }
          });
}

// --- By the norms of the variable and of its step ---

// Scales a step to the size of the weights; 1 where there is nothing to compare.
float TrustRatio(double weights, double step) {
  return weights > 0 && step > 0 ? static_cast<float>(weights / step) : 1;
}

struct LambConstants {
  float weight_decay, beta1, beta2, epsilon, gradient_factor;
  float correction1, correction2;  // 1 / (1 - beta^step)
  float factor = 0;                // of the step
};

VPOD_SIMD void LambMoments(const float* g, float* m, float* v, const LambConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i];
    m[i] = k.beta1 * m[i] + (1 - k.beta1) * u;
    v[i] = k.beta2 * v[i] + (1 - k.beta2) * u * u;
  }
}
VPOD_SIMD void LambSteps(const float* w, const float* m, const float* v, float* step,
                         const LambConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    step[i] = m[i] * k.correction1 / (std::sqrt(v[i] * k.correction2) + k.epsilon) +
              k.weight_decay * w[i];
  }
}

LambConstants LambConstantsAt(const Optimizer& optimizer, const Workspace& at,
                              float gradient_factor) {
  const float* hyper = optimizer.HyperParameters(at);
  const double beta1 = hyper[2], beta2 = hyper[3], step = optimizer.Step(at);
  return {.weight_decay = hyper[1],
          .beta1 = hyper[2],
          .beta2 = hyper[3],
          .epsilon = hyper[4],
          .gradient_factor = gradient_factor,
          .correction1 = static_cast<float>(1 / (1 - Power(beta1, step))),
          .correction2 = static_cast<float>(1 / (1 - Power(beta2, step)))};
}

LambConstants LambConstantsByNorms(const Optimizer& optimizer, const Workspace& at,
                                   const Squares& squares) {
  LambConstants k = LambConstantsAt(optimizer, at, 0);
  const float* hyper = optimizer.HyperParameters(at);
  double weights = std::sqrt(squares.weights);
  if (optimizer.hyper_parameters() > 5) weights = std::min<double>(weights, hyper[5]);
  k.factor = hyper[0] * TrustRatio(weights, std::sqrt(squares.steps));
  return k;
}

// Calls visit(first, step, count) for the steps of parts of a block.
void ForLambSteps(const LambConstants& k, const Block& block, const auto& visit) {
  constexpr size_t kPart = 1024;
  float step[kPart];
  for (size_t first = 0; first < block.n; first += kPart) {
    const size_t count = std::min(kPart, block.n - first);
    LambSteps(block.weights + first, block.states[0] + first, block.states[1] + first, step, k,
              count);
    visit(first, step, count);
  }
}

auto LambConstantsOf(const auto& op) {
  return [op](const Optimizer& optimizer, const Workspace& at) -> absl::StatusOr<LambConstants> {
    VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
    return LambConstantsAt(optimizer, at, factor);
  };
}

void UpdateLamb(const LambConstants& k, const Block& block) {
  LambMoments(block.gradient, block.states[0], block.states[1], k, block.n);
}

Squares MeasureLamb(const LambConstants& k, const Block& block) {
  Squares squares{.weights = SumOfProducts(block.weights, block.weights, block.n)};
  ForLambSteps(k, block, [&](size_t, const float* step, size_t count) {
    squares.steps += SumOfProducts(step, step, count);
  });
  return squares;
}

void StepLamb(const LambConstants& k, const Block& block) {
  ForLambSteps(k, block, [&](size_t first, const float* step, size_t count) {
    SubtractScaled(block.weights + first, step, k.factor, count);
  });
}

absl::StatusOr<Kernel> PrepareLamb(const program::v1::Ipu& ipu, const Instruction& instruction) {
  return Optimizer(ipu, instruction)
      .MakeByNorms(
          LambConstantsOf(instruction.lamb()), UpdateLamb, MeasureLamb,
          [](const Optimizer& optimizer, const Workspace& at,
             const Squares& squares) -> absl::StatusOr<LambConstants> {
            return LambConstantsByNorms(optimizer, at, squares);
          },
          Optimizer::KeepState(), StepLamb);
}

absl::StatusOr<Kernel> PrepareLambMoments(const program::v1::Ipu& ipu,
                                          const Instruction& instruction) {
  const Operand sums = Resolve(ipu, instruction.outputs(0));
  return Optimizer(ipu, instruction)
      .MakeNorms(LambConstantsOf(instruction.lamb_moments()), UpdateLamb, MeasureLamb,
                 [sums](const Workspace& at, const Squares& squares) {
                   sums.As<float>(at)[0] = static_cast<float>(squares.weights);
                   sums.As<float>(at)[1] = static_cast<float>(squares.steps);
                 });
}

absl::StatusOr<Kernel> PrepareLambStep(const program::v1::Ipu& ipu,
                                       const Instruction& instruction) {
  const Operand sums = Resolve(ipu, instruction.inputs(1));
  return Optimizer(ipu, instruction)
      .Make(
          [sums](const Optimizer& optimizer, const Workspace& at) -> absl::StatusOr<LambConstants> {
            const float* squares = sums.As<float>(at);
            return LambConstantsByNorms(optimizer, at,
                                        {.weights = squares[0], .steps = squares[1]});
          },
          Optimizer::KeepState(), StepLamb);
}

struct LarsConstants {
  float rate, weight_decay, momentum, gradient_factor, ratio;
};

VPOD_SIMD void LarsVelocity(const float* w, const float* g, float* v, const LarsConstants& k,
                            size_t n) {
  for (size_t i = 0; i < n; ++i)
    v[i] = k.momentum * v[i] + k.ratio * (k.gradient_factor * g[i] + k.weight_decay * w[i]);
}

// Weights and gradients are measured, the latter without their factor.
Squares MeasureLars(const LarsConstants&, const Block& block) {
  return {.weights = SumOfProducts(block.weights, block.weights, block.n),
          .steps = SumOfProducts(block.gradient, block.gradient, block.n)};
}

absl::StatusOr<Kernel> PrepareLars(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Lars op = instruction.lars();
  return Optimizer(ipu, instruction)
      .MakeByNorms(
          [](const Optimizer&, const Workspace&) -> absl::StatusOr<LarsConstants> {
            return LarsConstants();
          },
          Optimizer::KeepState(), MeasureLars,
          [op](const Optimizer& optimizer, const Workspace& at,
               const Squares& squares) -> absl::StatusOr<LarsConstants> {
            VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
            const float* hyper = optimizer.HyperParameters(at);
            const double weights = std::sqrt(squares.weights),
                         gradient =
                             std::sqrt(squares.steps) * std::abs(static_cast<double>(factor));
            const double weight_decay = hyper[1], trust = hyper[3], epsilon = hyper[4];
            const double step = gradient > 0 ? gradient + weight_decay * weights + epsilon : 0;
            return LarsConstants{.rate = hyper[0],
                                 .weight_decay = hyper[1],
                                 .momentum = hyper[2],
                                 .gradient_factor = factor,
                                 .ratio = TrustRatio(trust * weights, step)};
          },
          [](const LarsConstants& k, const Block& block) {
            LarsVelocity(block.weights, block.gradient, block.states[0], k, block.n);
          },
          [](const LarsConstants& k, const Block& block) {
            SubtractScaled(block.weights, block.states[0], k.rate, block.n);
          });
}

}  // namespace

std::vector<KernelDef> OptimizerKernels() {
  return {{Instruction::kSgd, PrepareSgd},
          {Instruction::kAdam, PrepareAdam},
          {Instruction::kRmsProp, PrepareRmsProp},
          {Instruction::kLamb, PrepareLamb},
          {Instruction::kLambMoments, PrepareLambMoments},
          {Instruction::kLambStep, PrepareLambStep},
          {Instruction::kLars, PrepareLars}};
}

}  // namespace vpod::engine
