#include "client/compiler/update.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/compiler/offload.h"
#include "device/arch/hardware.h"
#include "device/program/op.h"

namespace vpod::compiler {

using graph::Tensor;
using graph::Value;
using program::v1::Instruction;
using program::v1::Origin;

Update::Update(const GraphProgram& program, RandomRounding& rounding, Placement& placement)
    : graph_(program.graph),
      spec_(program.spec),
      replicas_(program.replicas),
      shards_(program.tensor_shards),
      off_chip_state_(program.off_chip_state),
      rounds_(!program.rounding.empty()),
      reduces_alone_(program.off_chip_accumulators && spec_.accumulation > 1 &&
                     !spec_.automatic_loss_scale && !spec_.clip_value && !spec_.clip_norm),
      gradients_(program.gradients.of_variables),
      loss_scale_(program.gradients.loss_scale),
      loss_scale_factor_(program.gradients.loss_scale_factor),
      gradient_scale_(spec_.reduction == GradientReduction::kMean
                          ? 1.0f / static_cast<float>(uint64_t{spec_.accumulation} * replicas_)
                      : spec_.reduction == GradientReduction::kRunningMean
                          ? 1.0f / static_cast<float>(replicas_)
                          : 1.0f),
      rounding_(rounding),
      placement_(placement),
      gradient_places_(gradients_.size()),
      at_once_(spec_.accumulation == 1 && replicas_ == 1 && !spec_.automatic_loss_scale &&
               !spec_.histogram_loss_scale && !spec_.clip_norm && !spec_.clip_value &&
               program.rounding.empty()) {
  for (size_t v = 0; v < gradients_.size(); ++v) {
    for (Tensor gradient : gradients_[v])
      uses_[graph_.RootOf(gradient.id)].push_back({v, gradient});
  }
  for (Tensor gradient : program.gradients.counted) {
    counted_gradients_.insert(gradient.id);
    counted_elements_ += static_cast<double>(graph_.TypeOf(gradient).elements());
  }
  if (at_once_) FindLastReaders();
}

void Update::FindLastReaders() {
  last_readers_.assign(gradients_.size(), 0);
  std::map<uint32_t, size_t> variables;  // of values that are variables or views of them
  for (size_t v = 0; v < gradients_.size(); ++v) variables[graph_.variables()[v].id] = v;
  const auto find = [&](uint32_t value) { return variables.find(graph_.RootOf(value)); };
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Instruction& instruction = graph_.nodes()[i].instruction;
    for (uint32_t input : instruction.inputs()) {
      const auto variable = find(input);
      if (variable == variables.end()) continue;
      last_readers_[variable->second] = i;
      if (program::FindOp(instruction.attributes_case())->view != nullptr)
        variables[instruction.outputs(0)] = variable->second;
    }
  }
  const auto keep = [&](Tensor value) {
    const auto variable = find(value.id);
    if (variable != variables.end()) last_readers_[variable->second] = SIZE_MAX;
  };
  for (const auto& output : graph_.outputs()) keep(output.value);
  for (const graph::Assignment& assignment : graph_.assignments()) {
    keep(assignment.value);
    keep(assignment.variable);  // updated from the assigned value
  }
  for (const auto& of_variable : gradients_) {
    for (Tensor gradient : of_variable) keep(gradient);
  }
}

void Update::AfterNode(size_t number) {
  const graph::Node& node = graph_.nodes()[number];
  for (uint32_t value : node.instruction.outputs()) {
    if (counted_gradients_.contains(value))
      CountGradient(value, node.ipu, graph_.origins().at(node.origin).stage());
    Accumulate(value);
  }
  std::erase_if(waiting_, [&](size_t v) {
    if (last_readers_[v] > number) return false;
    UpdateAtOnce(v);
    return true;
  });
}

void Update::UpdateAtOnce(size_t v) {
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  const uint32_t ipu = variable.ipu;
  const std::pair<uint32_t, uint32_t> storage = {
      ipu, placement_.TensorAt(ipu, gradient_places_[v]).storage};
  // Input, variable or constant: an update in place may change it.
  const auto outside = placement_.StoragesFromOutside();
  if (std::find(outside.begin(), outside.end(), storage) != outside.end()) return;
  Made update = MakeUpdate(v, gradient_places_[v]);
  if (steps_.contains(ipu)) CountStep(ipu, Section::kBody);
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  EmitUpdate(ipu, Section::kBody, std::move(update));
  updated_.insert(v);
}

void Update::Emit() {
  for (size_t v = 0; v < gradients_.size(); ++v) {
    // A variable that the loss does not depend on keeps its value, as in PyTorch.
    const Tensor variable = graph_.variables()[v];
    if (gradients_[v].empty())
      gradient_places_[v] = placement_.Place(variable.id, graph_.values()[variable.id].ipu);
    for (Tensor gradient : gradients_[v])
      Accumulate(graph_.RootOf(gradient.id));  // of what no node makes
    if (sums_of_uses_.contains(v)) gradient_places_[v] = SumOfUses(v);
    if (!gradients_[v].empty() && !updated_.contains(v)) gradient_places_[v] = Widened(v);
  }
  const auto readers = ReadersOfStorages();
  std::map<uint32_t, Reduction> reductions;  // by IPU
  std::vector<Left> left;
  for (size_t v = 0; v < gradients_.size(); ++v) {
    if (gradients_[v].empty() || updated_.contains(v)) continue;
    const uint32_t ipu = graph_.values()[graph_.variables()[v].id].ipu;
    const LoweredTensor& gradient = placement_.TensorAt(ipu, gradient_places_[v]);
    const bool unshared = readers.at({ipu, gradient.storage}) == 1;
    Left& each = left.emplace_back(Left{v, 0, {}});
    Reduction& reduction = reduces_alone_ ? each.own : reductions[ipu];
    each.gradient = Reduced(v, unshared, reduction);
    reduction.gradients.push_back(each.gradient);
  }
  if (left.empty()) return;
  for (auto& [ipu, reduction] : reductions) {
    placement_.SetOrigin("", Origin::UPDATE);
    EmitReduction(ipu, Section::kReduce, reduction);
  }
  if (spec_.histogram_loss_scale) EmitHistogramLossScale();
  // The first looks at gradients as they are.
  if (spec_.automatic_loss_scale) EmitAutomaticLossScale(reductions);
  if (spec_.clip_value) EmitClipValue(reductions);
  if (spec_.clip_norm) EmitClipNorm(reductions);
  EmitUpdates(std::move(left));
  for (auto& [ipu, gather] : gathers_) {
    placement_.SetOrigin("", Origin::UPDATE);
    placement_.Emit(ipu, Section::kFinish, std::move(gather));
  }
}

// The gradient of a variable, or this replica's part of it, summed over all replicas. It may
// replace its own summand if nothing else is in the place of that.
uint32_t Update::Reduced(size_t v, bool unshared, Reduction& reduction) {
  if (IsScattered(v)) return Scatter(v, reduction);
  const uint32_t ipu = graph_.values()[graph_.variables()[v].id].ipu,
                 gradient = gradient_places_[v];
  const LoweredTensor& tensor = placement_.TensorAt(ipu, gradient);
  const uint32_t reduced =
      unshared && !tensor.wide_accumulator
          ? gradient
          : placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, tensor.type.dims}});
  reduction.whole.mutable_all_reduce()->set_operator_(program::v1::SUM);
  reduction.whole.add_inputs(gradient);
  reduction.whole.add_outputs(reduced);
  return reduced;
}

void Update::EmitReduction(uint32_t ipu, Section section, Reduction& reduction) {
  for (Instruction* step : {&reduction.scatter, &reduction.across, &reduction.whole}) {
    if (step->inputs_size() > 0) placement_.Emit(ipu, section, std::move(*step));
  }
}

void Update::EmitUpdates(std::vector<Left> left) {
  struct Step {
    const Value* variable;
    Reduction reduction;
    Made update;
  };
  std::map<uint32_t, std::vector<Step>> updates;  // by IPU
  for (Left& each : left) {
    const Tensor id = graph_.variables()[each.variable];
    const Value& variable = graph_.values()[id.id];
    Made update = MakeUpdate(each.variable, each.gradient);
    rounding_.Apply(id.id, variable.ipu, Section::kUpdate, update.instructions.back());
    updates[variable.ipu].push_back({&variable, std::move(each.own), std::move(update)});
  }
  for (auto& [ipu, steps] : updates) {
    if (steps_.contains(ipu)) CountStep(ipu, Section::kUpdate);
    for (auto& [variable, reduction, update] : steps) {
      placement_.SetOrigin(variable->name, Origin::UPDATE, variable->stage);
      EmitReduction(ipu, Section::kUpdate, reduction);
      EmitUpdate(ipu, Section::kUpdate, std::move(update));
    }
  }
}

void Update::EmitUpdate(uint32_t ipu, Section section, Made update) {
  for (const RemoteState& state : update.remote) {
    placement_.Emit(ipu, section, LoadRow(state.buffer, state.tensor, state.row));
  }
  for (Instruction& step : update.instructions) placement_.Emit(ipu, section, std::move(step));
  for (const RemoteState& state : update.remote) {
    placement_.Emit(ipu, section, StoreRow(state.buffer, state.tensor, state.row));
  }
}

uint32_t Update::RowNumber(uint32_t ipu, uint32_t row) {
  const auto [number, is_new] = row_numbers_.try_emplace({ipu, row});
  if (!is_new) return number->second;
  number->second = placement_.NewTensor(ipu, {.type = {program::v1::INT32, {}}});
  Instruction fill;
  fill.mutable_fill()->set_value(row);
  fill.add_outputs(number->second);
  placement_.Emit(ipu, Section::kSetup, std::move(fill));
  return number->second;
}

void Update::Accumulate(uint32_t value) {
  const auto uses = uses_.find(value);
  if (uses == uses_.end()) return;
  for (const Use& use : uses->second) {
    gradient_places_[use.variable] = EmitGradient(use);
    if (at_once_) waiting_.push_back(use.variable);
  }
  uses_.erase(uses);
}

// The gradient of a variable, or where it is summed over micro-batches.
uint32_t Update::EmitGradient(const Use& use) {
  const Value& variable = graph_.values()[graph_.variables()[use.variable].id];
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  const uint32_t ipu = variable.ipu;
  placement_.Bring(use.gradient.id, ipu);
  const uint32_t gradient =
      placement_.Flat(ipu, placement_.PlaceAs(use.gradient.id, ipu, OrderOfVariable(use.variable)));
  if (spec_.accumulation > 1 && spec_.reduction == GradientReduction::kRunningMean) {
    EmitRunningMean(use, gradient);
    return gradient;
  }
  if (spec_.accumulation > 1 && spec_.float16_accumulators) {
    EmitFloat16Sum(use, gradient);
    return gradient;
  }
  if (spec_.accumulation > 1 || gradients_[use.variable].size() > 1) {
    const uint32_t accumulator =
        AccumulatorOf(use.variable, placement_.TensorAt(ipu, gradient).type.dims);
    Instruction accumulate;
    accumulate.mutable_accumulate();
    accumulate.add_inputs(accumulator);
    accumulate.add_inputs(gradient);
    accumulate.add_outputs(accumulator);
    placement_.Emit(ipu, Section::kBody, std::move(accumulate));
    return accumulator;
  }
  return gradient;
}

// Returns the gradient in float32, the type in which it is reduced.
uint32_t Update::Widened(size_t v) {
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  return WidenedForReduction(variable.ipu, gradient_places_[v]);
}

uint32_t Update::WidenedForReduction(uint32_t ipu, uint32_t gradient) {
  const program::TensorType& type = placement_.TensorAt(ipu, gradient).type;
  if (type.type == program::v1::FLOAT32) return gradient;
  Instruction cast;
  cast.mutable_cast()->set_type(program::v1::FLOAT32);
  cast.add_inputs(gradient);
  const uint32_t widened = placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, type.dims}});
  cast.add_outputs(widened);
  placement_.Emit(ipu, Section::kReduce, std::move(cast));
  return widened;
}

// How many gradients lie in each storage, and what else there does not die with the micro-batch:
// only a gradient that is alone may be reduced in place.
std::map<std::pair<uint32_t, uint32_t>, int> Update::ReadersOfStorages() const {
  std::map<std::pair<uint32_t, uint32_t>, int> readers;  // of (IPU, storage)
  for (size_t v = 0; v < gradients_.size(); ++v) {
    const uint32_t ipu = graph_.values()[graph_.variables()[v].id].ipu;
    if (!gradients_[v].empty())
      ++readers[{ipu, placement_.TensorAt(ipu, gradient_places_[v]).storage}];
  }
  for (const auto& storage : placement_.StoragesFromOutside()) ++readers[storage];
  return readers;
}

// The optimiser's instruction for variable number `v`.
Update::Made Update::MakeUpdate(size_t v, uint32_t gradient) {
  const Tensor id = graph_.variables()[v];
  const Value& variable = graph_.values()[id.id];
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  const uint32_t ipu = variable.ipu, place = placement_.Place(id.id, ipu),
                 whole = placement_.Flat(ipu, place);
  const bool sharded = IsSharded(v);
  const uint32_t weights = sharded ? PartOf(ipu, whole) : whole;
  if (sharded && !IsScattered(v)) gradient = PartOf(ipu, placement_.Flat(ipu, gradient));
  const size_t group = GroupOf(spec_, variable.name);
  auto [update, state, counts_updates] = StepOf(OptimizerOf(spec_, group), gradient_scale_);
  for (uint32_t input : {weights, gradient, HyperParametersAt(ipu, group), DivisorOf(ipu)})
    update.add_inputs(input);
  update.add_outputs(weights);
  Made made{{std::move(update)}, {}};
  if (state.empty()) return made;
  made.instructions[0].add_inputs(counts_updates ? StepAt(ipu) : Constant(ipu, kManyUpdates));
  for (const OptimizerState& each : state) AddState(v, each, sharded ? shards_ : 1, made);
  if (!sharded) return made;
  GatherWeights(ipu, weights, whole);
  if (made.instructions[0].has_lamb()) SplitLamb(ipu, made);
  return made;
}

// The vector of a group, which all its updates on the IPU share.
uint32_t Update::HyperParametersAt(uint32_t ipu, size_t group) {
  const auto [vector, is_new] = hyper_parameters_.try_emplace({ipu, group});
  if (is_new) {
    const auto size = static_cast<int64_t>(HyperParameters(OptimizerOf(spec_, group)).size());
    vector->second = placement_.NewTensor(
        ipu, {.type = {program::v1::FLOAT32, {size}}, .variable = HyperParametersName(ipu, group)});
  }
  return vector->second;
}

// Adds state to the update of a variable: as the variable lies, or one of `shards` parts of it.
void Update::AddState(size_t v, const OptimizerState& of_update, uint32_t shards, Made& made) {
  const Tensor id = graph_.variables()[v];
  const Value& variable = graph_.values()[id.id];
  const std::string name = absl::StrCat(of_update.prefix, variable.name);
  const program::v1::DataType type = of_update.type();
  const uint32_t ipu = variable.ipu;
  const int64_t elements = variable.type.elements() / shards;
  const uint32_t rows = RowsFor({type, {elements}});
  // As PopART does, scalars stay on the chip.
  const bool off_chip = off_chip_state_ && variable.type.elements() > 1 && rows > 0;
  LoweredTensor described{
      .type = {type, variable.type.dims},
      .variable = off_chip ? "" : name,
      .strides = placement_.TensorAt(ipu, placement_.Place(id.id, ipu)).strides};
  const program::v1::Tensor for_host = Describe(described, 0);
  if (shards > 1) {
    described.shards = {shards, std::move(described.type.dims), std::move(described.strides)};
    described.type.dims = {elements};
    described.strides.clear();
  }
  const uint32_t tensor = placement_.Flat(ipu, placement_.NewTensor(ipu, std::move(described)));
  made.instructions[0].add_inputs(tensor);
  made.instructions[0].add_outputs(tensor);
  if (!off_chip) return;
  program::v1::RemoteBuffer buffer;
  buffer.set_name(name);
  buffer.set_type(type);
  const LoweredTensor state = placement_.TensorAt(ipu, tensor);
  const program::Dims dims = rows == 1 ? state.type.dims : program::Dims{elements / rows};
  buffer.mutable_dims()->Add(dims.begin(), dims.end());
  buffer.set_rows(rows);
  *buffer.mutable_host_dims() = for_host.dims();
  *buffer.mutable_host_strides() = for_host.strides();
  if (shards > 1) buffer.set_shards(shards);
  const uint32_t number = placement_.AddRemoteBuffer(ipu, std::move(buffer));
  if (rows == 1) return made.remote.push_back({number, tensor, RowNumber(ipu, 0)});
  const program::TensorType row_type = {type, dims};
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t view = placement_.AddView(
        ipu, {.type = row_type, .storage = state.storage, .offset = row * row_type.bytes()});
    made.remote.push_back({number, view, RowNumber(ipu, row)});
  }
}

// The number of updates so far, which CountStep counts.
uint32_t Update::StepAt(uint32_t ipu) {
  const auto [step, is_first] = steps_.try_emplace(ipu);
  if (is_first) {
    step->second = placement_.NewTensor(
        ipu, {.type = {program::v1::FLOAT32, {}}, .variable = OptimizerStepName(ipu)});
  }
  return step->second;
}

void Update::CountStep(uint32_t ipu, Section section) {
  if (!counted_.insert(ipu).second) return;
  placement_.SetOrigin(OptimizerStepName(ipu), Origin::UPDATE);
  const uint32_t one = Constant(ipu, 1);
  Instruction count;
  count.mutable_binary()->set_operator_(program::v1::ADD);
  count.add_inputs(steps_.at(ipu));
  count.add_inputs(one);
  count.add_outputs(steps_.at(ipu));
  placement_.Emit(ipu, section, std::move(count));
}

Order Update::OrderOfVariable(size_t v) {
  const uint32_t id = graph_.variables()[v].id, ipu = graph_.values()[id].ipu;
  return placement_.OrderOf(ipu, placement_.Place(id, ipu)).value_or(Order::kRowMajor);
}

// All uses of the variable add to it; their gradients lie alike.
uint32_t Update::AccumulatorOf(size_t v, const program::Dims& dims) {
  const auto [accumulator, is_new] = accumulators_.try_emplace(v);
  if (!is_new) return accumulator->second;
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  accumulator->second = placement_.NewTensor(
      variable.ipu, {.type = {program::v1::FLOAT32, dims}, .wide_accumulator = true});
  Instruction clear;
  clear.mutable_fill();
  clear.add_outputs(accumulator->second);
  placement_.Emit(variable.ipu, Section::kClear, std::move(clear));
  return accumulator->second;
}

}  // namespace vpod::compiler
