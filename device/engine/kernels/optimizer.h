// The parts that the kernels of all optimisers have in common.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// The operands that all optimisers have.
class Optimizer {
 public:
  // The state of a range, as the optimiser has it; null beyond.
  using States = std::array<float*, 3>;
  static constexpr int kHyperParameters = 2, kLossScale = 3, kStep = 4, kState = 5;  // inputs

  Optimizer(const program::v1::Ipu& ipu, const Instruction& instruction)
      : hyper_parameters_(Resolve(ipu, instruction.inputs(kHyperParameters))),
        loss_scale_(Resolve(ipu, instruction.inputs(kLossScale))),
        elements_(ChunkNormBlocks(Resolve(ipu, instruction.inputs(0)).elements())) {
    const auto block = [&](int input) {
      return FloatBlock(Resolve(ipu, instruction.inputs(input)), elements_.per_chunk, scratch_);
    };
    weights_ = instruction.has_lamb_moments()
                   ? block(0)
                   : FloatBlock(ResolveOutput(ipu, instruction, 0), elements_.per_chunk, scratch_);
    if (!instruction.has_lamb_step()) gradient_ = block(1);
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

  // `update(optimizer, at, weights, gradient, state, n)` changes the weights and each state of a
  // range. The gradient is null if the instruction has none.
  template <class Update>
  Kernel Make(Update update) const {
    const Optimizer self = *this;
    return OnePhase(
        elements_.chunks(), scratch_.bytes(),
        [self, update](const Workspace& at, size_t chunk) -> absl::Status {
          const size_t first = self.elements_.begin(chunk), n = self.elements_.size(chunk);
          const States state = self.StatesAt(at, first, n);
          const float* gradient = self.gradient_ ? self.gradient_->Read(at, first, n) : nullptr;
          VPOD_RETURN_IF_ERROR(
              update(self, at, self.weights_.ReadWrite(at, first, n), gradient, state, n));
          self.weights_.Store(at, first, n);
          return absl::OkStatus();
        });
  }

  // Two sums of squares, over all elements of a variable.
  struct Squares {
    double weights = 0, steps = 0;
  };
  // As Make, with a pass over the elements before: `measure`, which takes what `update` takes,
  // gives the squares of a block and may change the state, but not the weights; `update` takes
  // those of all as its last argument.
  template <class Measure, class Update>
  Kernel MakeByNorms(Measure measure, Update update) const {
    const Optimizer self = *this;
    const size_t all = NormBlocks(elements_.items);
    Kernel kernel = MakeNorms(measure, [=](const Workspace& at, const Squares& squares) {
      SquaresAt(at)[all] = squares;
    });
    kernel.phases.push_back(
        {elements_.chunks(), [=](const Workspace& at, size_t chunk) -> absl::Status {
           const size_t first = self.elements_.begin(chunk), n = self.elements_.size(chunk);
           VPOD_RETURN_IF_ERROR(update(self, at, self.weights_.ReadWrite(at, first, n),
                                       self.gradient_->Read(at, first, n),
                                       self.StatesAt(at, first, n), n, SquaresAt(at)[all]));
           self.weights_.Store(at, first, n);
           return absl::OkStatus();
         }});
    return kernel;
  }

  // The first part of it: `finish(at, squares)` takes the squares of all elements.
  template <class Measure, class Finish>
  Kernel MakeNorms(Measure measure, Finish finish) const {
    const Optimizer self = *this;
    const size_t blocks = NormBlocks(elements_.items);
    Kernel kernel{.shared_bytes = (blocks + 1) * sizeof(Squares),
                  .scratch_bytes = scratch_.bytes()};
    kernel.phases.push_back(
        {elements_.chunks(), [=](const Workspace& at, size_t chunk) -> absl::Status {
           const size_t first = self.elements_.begin(chunk), n = self.elements_.size(chunk);
           const float *weights = self.weights_.Read(at, first, n),
                       *gradient = self.gradient_->Read(at, first, n);
           States states = self.StatesAt(at, first, n);
           for (size_t i = 0; i < n; i += kNormBlock) {
             VPOD_ASSIGN_OR_RETURN(
                 SquaresAt(at)[(first + i) / kNormBlock],
                 measure(self, at, weights + i, gradient + i, states, std::min(kNormBlock, n - i)));
             for (float*& state : states) state = state == nullptr ? nullptr : state + kNormBlock;
           }
           return absl::OkStatus();
         }});
    kernel.phases.push_back({1, [=](const Workspace& at, size_t) {
                               Squares all;
                               for (size_t block = 0; block < blocks; ++block) {
                                 all.weights += SquaresAt(at)[block].weights;
                                 all.steps += SquaresAt(at)[block].steps;
                               }
                               finish(at, all);
                               return absl::OkStatus();
                             }});
    return kernel;
  }

 private:
  // The sums of the blocks, then those of all.
  static Squares* SquaresAt(const Workspace& at) { return reinterpret_cast<Squares*>(at.shared); }
  States StatesAt(const Workspace& at, size_t first, size_t n) const {
    States state = {};
    for (size_t i = 0; i < state_.size(); ++i) state[i] = state_[i].ReadWrite(at, first, n);
    return state;
  }

  const Operand hyper_parameters_, loss_scale_;
  const Chunking elements_;
  Operand step_;
  MemoryPlan scratch_;
  FloatBlock weights_;
  std::optional<FloatBlock> gradient_;
  std::vector<FloatBlock> state_;  // of float32: where it lies
};

}  // namespace vpod::engine
