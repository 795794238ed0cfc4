#include "client/compiler/random_rounding.h"

#include <algorithm>

#include "client/compiler/optimizer.h"
#include "device/program/op.h"

namespace vpod::compiler {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::Instruction;

std::map<uint32_t, RoundingState> AddRoundingStates(Graph& graph, const ProgramSpec& spec,
                                                    const CompileOptions& options) {
  std::map<uint32_t, RoundingState> states;
  if (options.rounding == Rounding::kNearest) return states;
  std::map<uint32_t, uint32_t> ipus;  // that round, each with its first stage
  for (const graph::Node& node : graph.nodes()) {
    for (uint32_t id : node.instruction.outputs()) {
      if (graph.values()[id].type.type != FLOAT16) continue;
      const uint32_t stage = graph.origins().at(node.origin).stage();
      const auto [first, is_new] = ipus.emplace(node.ipu, stage);
      first->second = std::min(first->second, stage);
    }
  }
  for (Tensor variable : graph.variables()) {
    const graph::Value& value = graph.values()[variable.id];
    if (value.type.type == FLOAT16 || HasFloat16State(spec, value.name))
      ipus.emplace(value.ipu, value.stage);
  }
  const bool equal_seeds = options.rounding == Rounding::kStochasticEqualSeeds;
  for (const auto& [ipu, stage] : ipus) {
    graph.SetIpu(ipu);
    graph.SetStage(stage);
    const Graph::RandomState& state = graph.GetRandomState();
    states[ipu] = {.seed = state.seed,
                   .number = equal_seeds ? state.first : state.micro_batch,
                   .counter = state.counter};
  }
  const Tensor replicas = graph.Constant({program::v1::UINT32, {}}, options.total_replicas);
  for (auto& [ipu, state] : states) state.replicas = replicas;
  return states;
}

void RandomRounding::Apply(uint32_t number, uint32_t ipu, Section section,
                           Instruction& instruction) {
  const auto found = states_.find(ipu);
  if (found == states_.end() || !program::FindOp(instruction.attributes_case())->rounds) return;
  const auto is_half = [&](uint32_t index) {
    return placement_.TensorAt(ipu, index).type.type == FLOAT16;
  };
  if (std::none_of(instruction.outputs().begin(), instruction.outputs().end(), is_half)) return;
  const RoundingState& state = found->second;
  program::v1::StochasticRounding& rounding = *instruction.mutable_rounding();
  rounding.set_seed(placement_.Place(state.seed.id, ipu));
  rounding.set_counter(section == Section::kUpdate ? CounterOfUpdate(ipu, state)
                                                   : placement_.Place(state.number.id, ipu));
  rounding.set_number(number);
}

// How many micro-batches the job has trained with when it updates: the counter, which has counted
// the last one, times the replicas.
uint32_t RandomRounding::CounterOfUpdate(uint32_t ipu, const RoundingState& state) {
  const auto found = update_counters_.find(ipu);
  if (found != update_counters_.end()) return found->second;
  Instruction multiply;
  multiply.mutable_binary()->set_operator_(program::v1::MULTIPLY);
  multiply.add_inputs(placement_.Place(state.counter.id, ipu));
  multiply.add_inputs(placement_.Place(state.replicas.id, ipu));
  const uint32_t counter = placement_.NewTensor(ipu, {.type = {program::v1::UINT32, {}}});
  multiply.add_outputs(counter);
  placement_.Emit(ipu, Section::kReduce, std::move(multiply));
  return update_counters_[ipu] = counter;
}

}  // namespace vpod::compiler
