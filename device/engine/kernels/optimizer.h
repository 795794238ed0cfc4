// The parts that the kernels of all optimisers have in common.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// The operands that all optimisers have, and how their kernels go through them: block by block, so
// that what several steps read stays in the cache.
class Optimizer {
 public:
  // n elements of each operand, as float32.
  struct Block {
    float* weights;
    const float* gradient;         // null if the instruction has none
    std::array<float*, 3> states;  // in the optimiser's order; null beyond
    size_t n;
  };
  static constexpr int kHyperParameters = 2, kLossScale = 3, kStep = 4, kState = 5;  // inputs

  Optimizer(const program::v1::Ipu& ipu, const Instruction& instruction)
      : hyper_parameters_(Resolve(ipu, instruction.inputs(kHyperParameters))),
        loss_scale_(Resolve(ipu, instruction.inputs(kLossScale))),
        elements_(ChunkNormBlocks(Resolve(ipu, instruction.inputs(0)).elements())) {
    const auto block = [&](Operand operand) {
      return FloatBlock(std::move(operand), kNormBlock, scratch_);
    };
    weights_ = block(instruction.has_lamb_moments() ? Resolve(ipu, instruction.inputs(0))
                                                    : ResolveOutput(ipu, instruction, 0));
    if (!instruction.has_lamb_step()) gradient_ = block(Resolve(ipu, instruction.inputs(1)));
    if (instruction.inputs_size() > kStep) step_ = Resolve(ipu, instruction.inputs(kStep));
    for (int i = kState; i < instruction.inputs_size(); ++i) {
      const int output = 1 + i - kState;
      states_.push_back(block(output < instruction.outputs_size()
                                  ? ResolveOutput(ipu, instruction, output)
                                  : Resolve(ipu, instruction.inputs(i))));
    }
  }

  const float* HyperParameters(const Workspace& at) const {
    return hyper_parameters_.As<float>(at);
  }
  size_t hyper_parameters() const { return hyper_parameters_.elements(); }
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

  // The kernels below take functions: `constants(optimizer, at)` gives what the others take first,
  // or an error; `update(k, block)` changes the state, which is then rounded to its type, and
  // KeepState stands for one that changes nothing; `step(k, block)` changes the weights, and may
  // change state of float32.
  struct KeepState {};
  template <class Constants, class Update, class Step>
  Kernel Make(Constants constants, Update update, Step step) const {
    Kernel kernel{.scratch_bytes = scratch_.bytes()};
    AddSteps(constants, update, step, kernel);
    return kernel;
  }

  // Two sums of squares, over all elements of a variable.
  struct Squares {
    double weights = 0, steps = 0;
  };
  // A kernel whose weights change by norms of the variable. It goes through the elements twice:
  // `measure(k, block)` gives the squares of a block of the first pass, and `constants_by_norms`
  // takes those of all elements behind the arguments of `constants`.
  template <class Constants, class Update, class Measure, class ByNorms, class UpdateByNorms,
            class Step>
  Kernel MakeByNorms(Constants constants, Update update, Measure measure,
                     ByNorms constants_by_norms, UpdateByNorms update_by_norms, Step step) const {
    const size_t all = NormBlocks(elements_.items);
    Kernel kernel = MakeNorms(
        constants, update, measure,
        [=](const Workspace& at, const Squares& squares) { SquaresAt(at)[all] = squares; });
    AddSteps(
        [=](const Optimizer& optimizer, const Workspace& at) {
          return constants_by_norms(optimizer, at, SquaresAt(at)[all]);
        },
        update_by_norms, step, kernel);
    return kernel;
  }

  // The first pass of it: `finish(at, squares)` takes the squares of all elements.
  template <class Constants, class Update, class Measure, class Finish>
  Kernel MakeNorms(Constants constants, Update update, Measure measure, Finish finish) const {
    const size_t blocks = NormBlocks(elements_.items);
    Kernel kernel{.shared_bytes = (blocks + 1) * sizeof(Squares),
                  .scratch_bytes = scratch_.bytes()};
    AddPass(
        constants,
        [=](const Optimizer& self, const Workspace& at, const auto& k, Block& block, size_t first) {
          self.UpdateState(update, at, k, block, first);
          SquaresAt(at)[first / kNormBlock] = measure(k, block);
        },
        kernel);
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
  // Adds a pass over all elements: `visit(optimizer, at, k, block, first)` for each block.
  template <class Constants, class Visit>
  void AddPass(Constants constants, Visit visit, Kernel& kernel) const {
    const Optimizer self = *this;
    kernel.phases.push_back(
        {elements_.chunks(), [=](const Workspace& at, size_t chunk) -> absl::Status {
           const auto k = constants(self, at);
           if (!k.ok()) return k.status();
           const size_t end = self.elements_.end(chunk);
           for (size_t first = self.elements_.begin(chunk); first < end; first += kNormBlock) {
             Block block = self.BlockAt(at, first, std::min(kNormBlock, end - first));
             visit(self, at, *k, block, first);
           }
           return absl::OkStatus();
         }});
  }

  template <class Constants, class Update, class Step>
  void AddSteps(Constants constants, Update update, Step step, Kernel& kernel) const {
    AddPass(
        constants,
        [=](const Optimizer& self, const Workspace& at, const auto& k, Block& block, size_t first) {
          self.UpdateState(update, at, k, block, first);
          step(k, block);
          self.weights_.Store(at, first, block.n);
        },
        kernel);
  }

  template <class Update>
  void UpdateState(const Update& update, const Workspace& at, const auto& k, Block& block,
                   size_t first) const {
    if constexpr (!std::is_same_v<Update, KeepState>) {
      update(k, block);
      for (size_t i = 0; i < states_.size(); ++i) {
        states_[i].Store(at, first, block.n);
        block.states[i] = states_[i].ReadWrite(at, first, block.n);
      }
    }
  }

  Block BlockAt(const Workspace& at, size_t first, size_t n) const {
    Block block{.weights = weights_.ReadWrite(at, first, n),
                .gradient = gradient_ ? gradient_->Read(at, first, n) : nullptr,
                .states = {},
                .n = n};
    for (size_t i = 0; i < states_.size(); ++i)
      block.states[i] = states_[i].ReadWrite(at, first, n);
    return block;
  }
  // The sums of the blocks, then those of all.
  static Squares* SquaresAt(const Workspace& at) { return reinterpret_cast<Squares*>(at.shared); }

  const Operand hyper_parameters_, loss_scale_;
  const Chunking elements_;
  Operand step_;
  MemoryPlan scratch_;
  FloatBlock weights_;
  std::optional<FloatBlock> gradient_;
  std::vector<FloatBlock> states_;
};

}  // namespace vpod::engine
