#include "client/compiler/random_rounding.h"

#include <algorithm>
#include <set>

#include "device/program/op.h"

namespace vpod::compiler {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::Instruction;

RandomRounding::RandomRounding(Graph& graph, const ProgramSpec& spec, const CompileOptions& options)
    : equal_seeds_(options.rounding == Rounding::kStochasticEqualSeeds) {
  if (options.rounding == Rounding::kNearest || !spec.loss.has_value() || !graph.status().ok())
    return;
  std::set<uint32_t> ipus;
  for (const graph::Node& node : graph.nodes()) {
    for (uint32_t id : node.instruction.outputs()) {
      if (graph.values()[id].type.type == FLOAT16) ipus.insert(node.ipu);
    }
  }
  for (Tensor variable : graph.variables()) {
    if (graph.TypeOf(variable).type == FLOAT16) ipus.insert(graph.values()[variable.id].ipu);
  }
  for (uint32_t ipu : ipus) {
    graph.SetIpu(ipu);
    states_[ipu] = graph.GetRandomState();
  }
  replicas_ = graph.Constant({program::v1::UINT32, {}}, options.total_replicas);
}

std::vector<uint32_t> RandomRounding::Values() const {
  std::vector<uint32_t> values;
  for (const auto& [ipu, state] : states_)
    values.push_back(equal_seeds_ ? state.first.id : state.micro_batch.id);
  return values;
}

void RandomRounding::Apply(uint32_t number, uint32_t ipu, Section section, Placement& placement,
                           Instruction& instruction) {
  if (!enabled() || !program::FindOp(instruction.attributes_case())->rounds) return;
  const auto is_half = [&](uint32_t index) {
    return placement.TensorAt(ipu, index).type.type == FLOAT16;
  };
  if (std::none_of(instruction.outputs().begin(), instruction.outputs().end(), is_half)) return;
  const Graph::RandomState& state = states_.at(ipu);
  program::v1::StochasticRounding& rounding = *instruction.mutable_rounding();
  rounding.set_seed(placement.Place(state.seed.id, ipu));
  rounding.set_counter(
      section == Section::kUpdate
          ? CounterOfUpdate(ipu, placement)
          : placement.Place(equal_seeds_ ? state.first.id : state.micro_batch.id, ipu));
  rounding.set_number(number);
}

// How many micro-batches the job has trained with when it updates: the counter, which has counted
// the last one, times the replicas.
uint32_t RandomRounding::CounterOfUpdate(uint32_t ipu, Placement& placement) {
  const auto found = update_counters_.find(ipu);
  if (found != update_counters_.end()) return found->second;
  Instruction multiply;
  multiply.mutable_binary()->set_operator_(program::v1::MULTIPLY);
  multiply.add_inputs(placement.Place(states_.at(ipu).counter.id, ipu));
  multiply.add_inputs(placement.Place(replicas_.id, ipu));
  const uint32_t counter = placement.NewTensor(ipu, {.type = {program::v1::UINT32, {}}});
  multiply.add_outputs(counter);
  placement.Emit(ipu, Section::kReduce, std::move(multiply));
  return update_counters_[ipu] = counter;
}

}  // namespace vpod::compiler
