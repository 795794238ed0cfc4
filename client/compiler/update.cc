#include "client/compiler/update.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/program/op.h"

namespace vpod::compiler {

using graph::Tensor;
using graph::Value;
using program::v1::Instruction;
using program::v1::Origin;

std::string HyperParametersName(uint32_t ipu) {
  return absl::StrCat("optimizer/hyperParameters/ipu", ipu);
}
std::string OptimizerStepName(uint32_t ipu) { return absl::StrCat("optimizer/step/ipu", ipu); }

// Prefixes of the optimiser's state; the name of the variable follows.
constexpr char kVelocity[] = "Accl___", kFirstMoment[] = "Accl1___", kSecondMoment[] = "Accl2___",
               kLargestMoment[] = "AcclMax___";

bool IsOptimizerState(absl::string_view name) {
  for (const char* prefix :
       {kVelocity, kFirstMoment, kSecondMoment, kLargestMoment, "optimizer/"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

std::vector<float> HyperParameters(const SgdOptions& sgd) {
  // PyTorch dampens velocities, not plain gradients.
  const float dampening = sgd.momentum == 0 ? 0 : sgd.dampening;
  return {sgd.learning_rate, sgd.weight_decay, sgd.momentum, dampening};
}
std::vector<float> HyperParameters(const AdamOptions& adam) {
  return {adam.learning_rate, adam.weight_decay, adam.beta1, adam.beta2, adam.epsilon};
}
std::vector<float> HyperParameters(const ProgramSpec& spec) {
  return spec.adam ? HyperParameters(*spec.adam) : HyperParameters(spec.sgd);
}

Update::Update(const GraphProgram& program, RandomRounding& rounding, Placement& placement)
    : graph_(program.graph),
      spec_(program.spec),
      replicas_(program.replicas),
      gradients_(program.gradients.of_variables),
      loss_scale_(program.gradients.loss_scale),
      rounding_(rounding),
      placement_(placement),
      gradient_places_(gradients_.size()),
      at_once_(spec_.accumulation == 1 && replicas_ == 1 && !spec_.automatic_loss_scale &&
               program.rounding.empty()) {
  for (size_t v = 0; v < gradients_.size(); ++v) {
    for (Tensor gradient : gradients_[v])
      uses_[graph_.RootOf(gradient.id)].push_back({v, gradient});
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
  for (const graph::Assignment& assignment : graph_.assignments()) keep(assignment.value);
  for (const auto& of_variable : gradients_) {
    for (Tensor gradient : of_variable) keep(gradient);
  }
}

void Update::AfterNode(size_t number) {
  for (uint32_t value : graph_.nodes()[number].instruction.outputs()) Accumulate(value);
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
  Instruction update = MakeUpdate(v, gradient_places_[v]);
  if (steps_.contains(ipu)) CountStep(ipu, Section::kBody);
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  placement_.Emit(ipu, Section::kBody, std::move(update));
  updated_.insert(v);
}

void Update::Emit() {
  std::map<uint32_t, Instruction> reduce;  // by IPU
  struct Step {
    const Value* variable;
    Instruction instruction;
  };
  std::map<uint32_t, std::vector<Step>> updates;
  for (size_t v = 0; v < gradients_.size(); ++v) {
    // A variable that the loss does not depend on keeps its value, as in PyTorch.
    const Tensor variable = graph_.variables()[v];
    if (gradients_[v].empty())
      gradient_places_[v] = placement_.Place(variable.id, graph_.values()[variable.id].ipu);
    for (Tensor gradient : gradients_[v])
      Accumulate(graph_.RootOf(gradient.id));  // of what no node makes
    if (!gradients_[v].empty() && !updated_.contains(v)) gradient_places_[v] = Widened(v);
  }
  const auto readers = ReadersOfStorages();
  for (size_t v = 0; v < gradients_.size(); ++v) {
    if (gradients_[v].empty() || updated_.contains(v)) continue;
    const Value& variable = graph_.values()[graph_.variables()[v].id];
    const uint32_t ipu = variable.ipu;
    const LoweredTensor& gradient = placement_.TensorAt(ipu, gradient_places_[v]);
    const bool in_place = !gradient.wide_accumulator && readers.at({ipu, gradient.storage}) == 1;
    const uint32_t reduced =
        in_place ? gradient_places_[v]
                 : placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, gradient.type.dims}});
    reduce[ipu].mutable_all_reduce()->set_operator_(program::v1::SUM);
    reduce[ipu].add_inputs(gradient_places_[v]);
    reduce[ipu].add_outputs(reduced);
    updates[ipu].push_back({&variable, MakeUpdate(v, reduced)});
    rounding_.Apply(graph_.variables()[v].id, ipu, Section::kUpdate,
                    updates[ipu].back().instruction);
  }
  for (auto& [ipu, instruction] : reduce) {
    placement_.SetOrigin("", Origin::UPDATE);
    placement_.Emit(ipu, Section::kReduce, instruction);
    if (steps_.contains(ipu)) CountStep(ipu, Section::kUpdate);
    for (auto& [variable, update] : updates[ipu]) {
      placement_.SetOrigin(variable->name, Origin::UPDATE, variable->stage);
      placement_.Emit(ipu, Section::kUpdate, std::move(update));
    }
  }
  if (spec_.automatic_loss_scale) EmitAutomaticLossScale(reduce);
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
  if (spec_.accumulation > 1) {
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

// A gradient as it is reduced: in float32.
uint32_t Update::Widened(size_t v) {
  const Value& variable = graph_.values()[graph_.variables()[v].id];
  const uint32_t ipu = variable.ipu, gradient = gradient_places_[v];
  const program::TensorType& type = placement_.TensorAt(ipu, gradient).type;
  if (type.type == program::v1::FLOAT32) return gradient;
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
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

// One gradient that is not finite keeps all IPUs from updating. All replicas decide alike, since
// they look at the reduced gradients.
void Update::EmitAutomaticLossScale(const std::map<uint32_t, Instruction>& reduce) {
  if (reduce.empty()) return;
  placement_.SetOrigin(kLossScaleName, Origin::UPDATE);
  const uint32_t home = graph_.values()[loss_scale_.id].ipu;
  const LoweredTensor flag{.type = {program::v1::BOOL, {}}};
  std::optional<uint32_t> finite;  // on the loss scale's IPU
  for (const auto& [ipu, instruction] : reduce) {
    Instruction check;
    check.mutable_all_finite();
    *check.mutable_inputs() = instruction.outputs();
    uint32_t here = placement_.NewTensor(ipu, flag);
    check.add_outputs(here);
    placement_.Emit(ipu, Section::kReduce, std::move(check));
    if (ipu != home) {
      const uint32_t arrived = placement_.NewTensor(home, flag);
      placement_.AddMove(Section::kReduce, ipu, here, home, arrived);
      here = arrived;
    }
    if (finite) {
      Instruction both;
      both.mutable_binary()->set_operator_(program::v1::LOGICAL_AND);
      both.add_inputs(*finite);
      both.add_inputs(here);
      here = placement_.NewTensor(home, flag);
      both.add_outputs(here);
      placement_.Emit(home, Section::kReduce, std::move(both));
    }
    finite = here;
  }
  for (const auto& [ipu, instruction] : reduce) {
    uint32_t here = *finite;
    if (ipu != home) {
      here = placement_.NewTensor(ipu, flag);
      placement_.AddMove(Section::kReduce, home, *finite, ipu, here);
    }
    placement_.ipu(ipu).update_condition = here;
  }
  Instruction adapt;
  const uint32_t scale = placement_.Place(loss_scale_.id, home);
  const uint32_t tracker = placement_.NewTensor(
      home, {.type = {program::v1::INT32, {}}, .variable = kGrowthTrackerName});
  for (uint32_t tensor : {scale, tracker, *finite}) adapt.add_inputs(tensor);
  for (uint32_t tensor : {scale, tracker}) adapt.add_outputs(tensor);
  adapt.mutable_update_loss_scale()->set_growth(spec_.automatic_loss_scale->growth);
  adapt.mutable_update_loss_scale()->set_backoff(spec_.automatic_loss_scale->backoff);
  adapt.mutable_update_loss_scale()->set_interval(spec_.automatic_loss_scale->interval);
  placement_.Emit(home, Section::kFinish, std::move(adapt));
}

// The optimiser's instruction for variable number `v`.
Instruction Update::MakeUpdate(size_t v, uint32_t gradient) {
  const Tensor id = graph_.variables()[v];
  const Value& variable = graph_.values()[id.id];
  placement_.SetOrigin(variable.name, Origin::UPDATE, variable.stage);
  const uint32_t ipu = variable.ipu, place = placement_.Place(id.id, ipu),
                 weights = placement_.Flat(ipu, place);
  const auto parameters = static_cast<int64_t>(HyperParameters(spec_).size());
  Instruction update;
  update.add_inputs(weights);
  update.add_inputs(gradient);
  update.add_inputs(
      Shared(hyper_parameters_, ipu,
             {.type = {program::v1::FLOAT32, {parameters}}, .variable = HyperParametersName(ipu)}));
  update.add_inputs(LossScale(ipu));
  update.add_outputs(weights);
  const bool mean = spec_.reduction == GradientReduction::kMean;
  const float scale =
      mean ? 1.0f / static_cast<float>(uint64_t{spec_.accumulation} * replicas_) : 1.0f;
  std::vector<const char*> state;
  if (spec_.adam) {
    program::v1::Adam* adam = update.mutable_adam();
    adam->set_gradient_scale(scale);
    adam->set_decoupled_weight_decay(spec_.adam->decoupled_weight_decay);
    adam->set_maximize(spec_.adam->maximize);
    state = {kFirstMoment, kSecondMoment};
    if (spec_.adam->amsgrad) state.push_back(kLargestMoment);
  } else {
    program::v1::Sgd* sgd = update.mutable_sgd();
    sgd->set_gradient_scale(scale);
    sgd->set_nesterov(spec_.sgd.nesterov);
    sgd->set_maximize(spec_.sgd.maximize);
    if (spec_.sgd.momentum != 0) state = {kVelocity};
  }
  if (state.empty()) return update;
  update.add_inputs(Shared(
      steps_, ipu, {.type = {program::v1::FLOAT32, {}}, .variable = OptimizerStepName(ipu)}));
  for (const char* prefix : state) {
    const uint32_t tensor = placement_.Flat(
        ipu, placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, variable.type.dims},
                                        .variable = absl::StrCat(prefix, variable.name),
                                        .strides = placement_.TensorAt(ipu, place).strides}));
    update.add_inputs(tensor);
    update.add_outputs(tensor);
  }
  return update;
}

void Update::CountStep(uint32_t ipu, Section section) {
  if (!counted_.insert(ipu).second) return;
  placement_.SetOrigin(OptimizerStepName(ipu), Origin::UPDATE);
  const uint32_t one = placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, {}}});
  Instruction fill, count;
  fill.mutable_fill()->set_value(1);
  fill.add_outputs(one);
  placement_.Emit(ipu, Section::kSetup, std::move(fill));
  count.mutable_binary()->set_operator_(program::v1::ADD);
  count.add_inputs(steps_.at(ipu));
  count.add_inputs(one);
  count.add_outputs(steps_.at(ipu));
  placement_.Emit(ipu, section, std::move(count));
}

uint32_t Update::LossScale(uint32_t ipu) {
  if (loss_scale_.valid()) return placement_.Fetch(loss_scale_.id, ipu);
  const auto found = unit_scales_.find(ipu);
  if (found != unit_scales_.end()) return found->second;
  const uint32_t index = placement_.NewTensor(ipu, {.type = {program::v1::FLOAT32, {}}});
  Instruction fill;
  fill.mutable_fill()->set_value(1);
  fill.add_outputs(index);
  placement_.Emit(ipu, Section::kSetup, std::move(fill));
  return unit_scales_[ipu] = index;
}

// A tensor that all updates on an IPU share.
uint32_t Update::Shared(std::map<uint32_t, uint32_t>& by_ipu, uint32_t ipu, LoweredTensor tensor) {
  const auto found = by_ipu.find(ipu);
  if (found != by_ipu.end()) return found->second;
  return by_ipu[ipu] = placement_.NewTensor(ipu, std::move(tensor));
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
