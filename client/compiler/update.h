// The steps of a program from gradients to weights: it accumulates them over micro-batches, reduces
// them over replicas, checks them, and updates the weights.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/compiler/graph_program.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/placement.h"
#include "client/compiler/random_rounding.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

class Update {
 public:
  // The references outlive the object.
  Update(const GraphProgram& program, RandomRounding& rounding, Placement& placement);

  // To be called when the node of this number has been emitted. Added to its accumulator at once, a
  // gradient takes memory for a moment only. The same holds for a single replica that does not
  // accumulate: it updates a variable once no later node reads it.
  void AfterNode(size_t number);
  // Emits what is left after all nodes: all-reduces and updates. Gradients that are reduced are
  // float32, so that the sum of many float16 gradients does not overflow before it is scaled.
  void Emit();

 private:
  // A gradient of a variable, by its number.
  struct Use {
    size_t variable;
    graph::Tensor gradient;
  };

  void Accumulate(uint32_t value);
  void FindLastReaders();
  void UpdateAtOnce(size_t v);
  uint32_t EmitGradient(const Use& use);
  uint32_t Widened(size_t v);
  uint32_t WidenedForReduction(uint32_t ipu, uint32_t gradient);
  Order OrderOfVariable(size_t v);
  uint32_t AccumulatorOf(size_t v, const program::Dims& dims);
  std::map<std::pair<uint32_t, uint32_t>, int> ReadersOfStorages() const;
  // State in streaming memory that an update loads before and stores behind it.
  struct RemoteState {
    uint32_t buffer, tensor, row;
  };
  // The update of a variable on its IPU; LAMB may have several steps.
  struct Made {
    std::vector<program::v1::Instruction> instructions;
    std::vector<RemoteState> remote;
  };
  // How the gradients on an IPU are reduced: collectives, and their results.
  struct Reduction {
    program::v1::Instruction scatter, across, whole;
    std::vector<uint32_t> gradients;
  };
  // A variable to be updated with a gradient that is reduced, or will have been by `own`.
  struct Left {
    size_t variable;
    uint32_t gradient;
    Reduction own;
  };
  Made MakeUpdate(size_t v, uint32_t gradient);
  uint32_t HyperParametersAt(uint32_t ipu, size_t group);
  void AddState(size_t v, const OptimizerState& of_update, uint32_t shards, Made& made);
  void EmitReduction(uint32_t ipu, Section section, Reduction& reduction);
  void EmitUpdates(std::vector<Left> left);
  void EmitUpdate(uint32_t ipu, Section section, Made update);
  uint32_t RowNumber(uint32_t ipu, uint32_t row);
  uint32_t StepAt(uint32_t ipu);
  void CountStep(uint32_t ipu, Section section);
  uint32_t Reduced(size_t v, bool unshared, Reduction& reduction);

  // sharding.cc
  bool IsSharded(size_t v) const;
  bool IsScattered(size_t v) const;
  uint32_t Scatter(size_t v, Reduction& reduction);
  uint32_t Widest(size_t v);
  uint32_t PartOf(uint32_t ipu, uint32_t tensor);
  uint32_t NumberOfPart(uint32_t ipu);
  void GatherWeights(uint32_t ipu, uint32_t part, uint32_t weights);
  void SplitLamb(uint32_t ipu, Made& made);

  // running_mean.cc: adds the gradient of a use to the running mean of its own; the sum of those of
  // all uses; a tensor that has this value before the first micro-batch.
  void EmitRunningMean(const Use& use, uint32_t gradient);
  // Adds it to a FLOAT16 sum of its own.
  void EmitFloat16Sum(const Use& use, uint32_t gradient);
  uint32_t SumOfUses(size_t v);
  uint32_t Cleared(uint32_t ipu, const program::TensorType& type, float value);
  // A number for the rounding of an accumulator. Nodes and updates round with the numbers of their
  // values, which are smaller.
  uint32_t NewRoundingNumber() {
    return static_cast<uint32_t>(graph_.values().size()) + accumulator_roundings_++;
  }

  // histogram_loss_scale.cc: counts a gradient that has been made, in a node of this stage; gives
  // the optimisers their loss scale, and changes its factor.
  void CountGradient(uint32_t value, uint32_t ipu, uint32_t stage);
  void EmitHistogramLossScale();
  uint32_t LargestOfBin(uint32_t ipu);
  uint32_t CountOfAll(uint32_t home);
  uint32_t Choose(uint32_t ipu, uint32_t condition, uint32_t a, uint32_t b,
                  std::optional<uint32_t> output = std::nullopt);

  // gradient_scale.cc, with the reduced gradients of each IPU.
  void EmitAutomaticLossScale(const std::map<uint32_t, Reduction>& reductions);
  void EmitClipValue(const std::map<uint32_t, Reduction>& reductions);
  void EmitClipNorm(const std::map<uint32_t, Reduction>& reductions);
  uint32_t DivisorOf(uint32_t ipu);
  uint32_t LossScale(uint32_t ipu);
  uint32_t Constant(uint32_t ipu, float value);
  uint32_t EmitBinary(uint32_t ipu, program::v1::BinaryOperator op, uint32_t a, uint32_t b,
                      std::optional<uint32_t> output = std::nullopt);
  uint32_t MoveScalar(uint32_t from_ipu, uint32_t scalar, uint32_t to_ipu);

  const graph::Graph& graph_;
  const ProgramSpec& spec_;
  const uint32_t replicas_, shards_;
  const bool off_chip_state_, rounds_;
  // Whether a gradient is reduced right before its update, not with the others on the IPU.
  const bool reduces_alone_;
  const std::vector<std::vector<graph::Tensor>>& gradients_;  // by the variable's number
  const graph::Tensor loss_scale_, loss_scale_factor_;
  const float gradient_scale_;  // what optimisers multiply gradients by
  RandomRounding& rounding_;
  uint32_t accumulator_roundings_ = 0;  // so far
  Placement& placement_;
  std::map<uint32_t, std::vector<Use>> uses_;                         // by value
  std::map<size_t, uint32_t> accumulators_;                           // by the variable's number
  std::map<size_t, std::vector<uint32_t>> sums_of_uses_;              // of its uses
  std::vector<uint32_t> gradient_places_;                             // by the variable's number
  std::map<std::pair<uint32_t, size_t>, uint32_t> hyper_parameters_;  // by IPU and group
  std::map<std::pair<uint32_t, float>, uint32_t> constants_;          // by IPU and value
  std::map<uint32_t, uint32_t> steps_, divisors_;                     // by IPU
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> row_numbers_;     // by IPU and row
  std::map<uint32_t, uint32_t> part_numbers_;                         // by IPU
  std::map<uint32_t, program::v1::Instruction> gathers_;              // of weights, by IPU
  std::set<uint32_t> counted_;                                        // IPUs that count the step

  // --- With a histogram ---
  std::set<uint32_t> counted_gradients_;                      // values
  double counted_elements_ = 0;                               // of a micro-batch of one replica
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> counts_;  // by IPU and stage
  std::map<uint32_t, uint32_t> bin_edges_, scales_;           // by IPU

  // --- Updates between the nodes ---
  const bool at_once_;
  // By the variable's number: the last node that reads it, or SIZE_MAX if its value is wanted after
  // all nodes.
  std::vector<size_t> last_readers_;
  std::vector<size_t> waiting_;  // variables whose gradients are there
  std::set<size_t> updated_;
};

}  // namespace vpod::compiler
