#include "device/engine/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "device/base/simd.h"
#include "device/engine/kernels/row_sums.h"
#include "device/engine/kernels/vector_math.h"

namespace vpod::engine {
namespace {

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

absl::StatusOr<Kernel> PrepareSgd(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Sgd op = instruction.sgd();
  return Optimizer(ipu, instruction)
      .Make([op](const Optimizer& optimizer, const Workspace& at, float* w, const float* g,
                 const Optimizer::States& state, size_t n) -> absl::Status {
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
                 const Optimizer::States& state, size_t n) -> absl::Status {
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

struct RmsPropConstants {
  float weight_decay, alpha, epsilon, momentum, rate, gradient_factor;
};

// `means` and `velocity` may be null.
VPOD_SIMD void RmsPropRow(float* w, const float* g, float* squares, float* means, float* velocity,
                          const RmsPropConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float u = k.gradient_factor * g[i] + k.weight_decay * w[i];
    squares[i] = k.alpha * squares[i] + (1 - k.alpha) * u * u;
    float variance = squares[i];
    if (means != nullptr) {
      means[i] = k.alpha * means[i] + (1 - k.alpha) * u;
      variance -= means[i] * means[i];
    }
    float step = u / (std::sqrt(variance) + k.epsilon);
    if (velocity != nullptr) step = velocity[i] = k.momentum * velocity[i] + step;
    w[i] -= k.rate * step;
  }
}

absl::StatusOr<Kernel> PrepareRmsProp(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::RmsProp op = instruction.rms_prop();
  return Optimizer(ipu, instruction)
      .Make([op](const Optimizer& optimizer, const Workspace& at, float* w, const float* g,
                 const Optimizer::States& state, size_t n) -> absl::Status {
        VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
        const float* hyper = optimizer.HyperParameters(at);
        const RmsPropConstants k{.weight_decay = hyper[1],
                                 .alpha = hyper[2],
                                 .epsilon = hyper[3],
                                 .momentum = hyper[4],
                                 .rate = hyper[0],
                                 .gradient_factor = factor};
        RmsPropRow(w, g, state[0], op.centered() ? state[1] : nullptr,
                   op.with_momentum() ? state[op.centered() ? 2 : 1] : nullptr, k, n);
        return absl::OkStatus();
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
VPOD_SIMD void SubtractScaled(float* w, const float* step, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) w[i] -= factor * step[i];
}

LambConstants LambConstantsAt(const Optimizer& optimizer, const Workspace& at,
                              float gradient_factor = 0) {
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

// Calls visit(first, step, count) for the steps of blocks of a range.
void ForLambSteps(const float* w, const Optimizer::States& state, const LambConstants& k, size_t n,
                  const auto& visit) {
  constexpr size_t kBlock = 1024;
  float step[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    LambSteps(w + first, state[0] + first, state[1] + first, step, k, count);
    visit(first, step, count);
  }
}

// Updates the moments of a block and gives the squares of its weights and steps; `op` is a Lamb or
// a LambMoments.
auto MeasureLamb(const auto& op) {
  return [op](const Optimizer& optimizer, const Workspace& at, const float* w, const float* g,
              const Optimizer::States& state, size_t n) -> absl::StatusOr<Optimizer::Squares> {
    VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
    const LambConstants k = LambConstantsAt(optimizer, at, factor);
    LambMoments(g, state[0], state[1], k, n);
    Optimizer::Squares squares{.weights = SumOfProducts(w, w, n)};
    ForLambSteps(w, state, k, n, [&](size_t, const float* step, size_t count) {
      squares.steps += SumOfProducts(step, step, count);
    });
    return squares;
  };
}

void StepLamb(const Optimizer& optimizer, const Workspace& at, float* w,
              const Optimizer::States& state, size_t n, const Optimizer::Squares& squares) {
  const LambConstants k = LambConstantsAt(optimizer, at);
  const float factor = optimizer.HyperParameters(at)[0] *
                       TrustRatio(std::sqrt(squares.weights), std::sqrt(squares.steps));
  ForLambSteps(w, state, k, n, [&](size_t first, const float* step, size_t count) {
    SubtractScaled(w + first, step, factor, count);
  });
}

absl::StatusOr<Kernel> PrepareLamb(const program::v1::Ipu& ipu, const Instruction& instruction) {
  return Optimizer(ipu, instruction)
      .MakeByNorms(MeasureLamb(instruction.lamb()),
                   [](const Optimizer& optimizer, const Workspace& at, float* w, const float*,
                      const Optimizer::States& state, size_t n,
                      const Optimizer::Squares& squares) -> absl::Status {
                     StepLamb(optimizer, at, w, state, n, squares);
                     return absl::OkStatus();
                   });
}

absl::StatusOr<Kernel> PrepareLambMoments(const program::v1::Ipu& ipu,
                                          const Instruction& instruction) {
  const Operand sums = Resolve(ipu, instruction.outputs(0));
  return Optimizer(ipu, instruction)
      .MakeNorms(MeasureLamb(instruction.lamb_moments()),
                 [sums](const Workspace& at, const Optimizer::Squares& squares) {
                   sums.As<float>(at)[0] = static_cast<float>(squares.weights);
                   sums.As<float>(at)[1] = static_cast<float>(squares.steps);
                 });
}

absl::StatusOr<Kernel> PrepareLambStep(const program::v1::Ipu& ipu,
                                       const Instruction& instruction) {
  const Operand sums = Resolve(ipu, instruction.inputs(1));
  return Optimizer(ipu, instruction)
      .Make([sums](const Optimizer& optimizer, const Workspace& at, float* w, const float*,
                   const Optimizer::States& state, size_t n) -> absl::Status {
        const float* squares = sums.As<float>(at);
        StepLamb(optimizer, at, w, state, n, {.weights = squares[0], .steps = squares[1]});
        return absl::OkStatus();
      });
}

struct LarsConstants {
  float rate, weight_decay, momentum, gradient_factor, ratio;
};

VPOD_SIMD void LarsRow(float* w, const float* g, float* v, const LarsConstants& k, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    v[i] = k.momentum * v[i] + k.ratio * (k.gradient_factor * g[i] + k.weight_decay * w[i]);
    w[i] -= k.rate * v[i];
  }
}

absl::StatusOr<Kernel> PrepareLars(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const program::v1::Lars op = instruction.lars();
  return Optimizer(ipu, instruction)
      .MakeByNorms(
          [](const Optimizer&, const Workspace&, const float* w, const float* g,
             const Optimizer::States&, size_t n) -> absl::StatusOr<Optimizer::Squares> {
            return Optimizer::Squares{.weights = SumOfProducts(w, w, n),
                                      .steps = SumOfProducts(g, g, n)};
          },
          [op](const Optimizer& optimizer, const Workspace& at, float* w, const float* g,
               const Optimizer::States& state, size_t n,
               const Optimizer::Squares& squares) -> absl::Status {
            VPOD_ASSIGN_OR_RETURN(const float factor, optimizer.GradientFactor(op, at));
            const float* hyper = optimizer.HyperParameters(at);
            const double weights = std::sqrt(squares.weights),
                         gradient =
                             std::sqrt(squares.steps) * std::abs(static_cast<double>(factor));
            const double weight_decay = hyper[1], trust = hyper[3], epsilon = hyper[4];
            const double step = gradient > 0 ? gradient + weight_decay * weights + epsilon : 0;
            const LarsConstants k{.rate = hyper[0],
                                  .weight_decay = hyper[1],
                                  .momentum = hyper[2],
                                  .gradient_factor = factor,
                                  .ratio = TrustRatio(trust * weights, step)};
            LarsRow(w, g, state[0], k, n);
            return absl::OkStatus();
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
