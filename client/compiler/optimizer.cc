#include "client/compiler/optimizer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace vpod::compiler {
namespace {

// Prefixes of the optimiser's state; the name of the variable follows.
constexpr char kVelocity[] = "Accl___", kFirstMoment[] = "Accl1___", kSecondMoment[] = "Accl2___",
               kLargestMoment[] = "AcclMax___";

std::vector<float> ParametersOf(const SgdOptions& sgd) {
  // PyTorch dampens velocities, not plain gradients.
  const float dampening = sgd.momentum == 0 ? 0 : sgd.dampening;
  return {sgd.learning_rate, sgd.weight_decay, sgd.momentum, dampening};
}
std::vector<float> ParametersOf(const AdamOptions& adam) {
  return {adam.learning_rate, adam.weight_decay, adam.beta1, adam.beta2, adam.epsilon};
}
std::vector<float> ParametersOf(const RmsPropOptions& rms) {
  return {rms.learning_rate, rms.weight_decay, rms.alpha, rms.epsilon, rms.momentum};
}
std::vector<float> ParametersOf(const LambOptions& lamb) {
  return {lamb.learning_rate, lamb.weight_decay, lamb.beta1, lamb.beta2, lamb.epsilon};
}
std::vector<float> ParametersOf(const LarsOptions& lars) {
  return {lars.learning_rate, lars.weight_decay, lars.momentum, lars.trust, lars.epsilon};
}

void SetAttributes(const SgdOptions& sgd, float gradient_scale, OptimizerStep& step) {
  program::v1::Sgd& op = *step.instruction.mutable_sgd();
  op.set_gradient_scale(gradient_scale);
  op.set_nesterov(sgd.nesterov);
  op.set_maximize(sgd.maximize);
  if (sgd.momentum != 0) step.state = {kVelocity};
}
void SetAttributes(const AdamOptions& adam, float gradient_scale, OptimizerStep& step) {
  program::v1::Adam& op = *step.instruction.mutable_adam();
  op.set_gradient_scale(gradient_scale);
  op.set_decoupled_weight_decay(adam.decoupled_weight_decay);
  op.set_maximize(adam.maximize);
  step.state = {kFirstMoment, kSecondMoment};
  if (adam.amsgrad) step.state.push_back(kLargestMoment);
}
void SetAttributes(const RmsPropOptions& rms, float gradient_scale, OptimizerStep& step) {
  program::v1::RmsProp& op = *step.instruction.mutable_rms_prop();
  op.set_gradient_scale(gradient_scale);
  op.set_centered(rms.centered);
  op.set_with_momentum(rms.momentum != 0);
  op.set_maximize(rms.maximize);
  step.state = {kSecondMoment};
  if (rms.centered) step.state.push_back(kFirstMoment);
  if (rms.momentum != 0) step.state.push_back(kVelocity);
}
void SetAttributes(const LambOptions& lamb, float gradient_scale, OptimizerStep& step) {
  program::v1::Lamb& op = *step.instruction.mutable_lamb();
  op.set_gradient_scale(gradient_scale);
  op.set_maximize(lamb.maximize);
  step.state = {kFirstMoment, kSecondMoment};
}
void SetAttributes(const LarsOptions& lars, float gradient_scale, OptimizerStep& step) {
  program::v1::Lars& op = *step.instruction.mutable_lars();
  op.set_gradient_scale(gradient_scale);
  op.set_maximize(lars.maximize);
  step.state = {kVelocity};
}

}  // namespace

std::string HyperParametersName(uint32_t ipu, size_t group) {
  return absl::StrCat("optimizer/hyperParameters/ipu", ipu,
                      group == 0 ? "" : absl::StrCat("/group", group));
}
std::string OptimizerStepName(uint32_t ipu) { return absl::StrCat("optimizer/step/ipu", ipu); }

bool IsOptimizerState(absl::string_view name) {
  const auto prefixes = {kVelocity, kFirstMoment, kSecondMoment, kLargestMoment, "optimizer/"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return absl::StartsWith(name, prefix); });
}

std::vector<float> HyperParameters(const Optimizer& optimizer) {
  return std::visit([](const auto& options) { return ParametersOf(options); }, optimizer);
}

const Optimizer& OptimizerOf(const ProgramSpec& spec, size_t group) {
  return group == 0 ? spec.optimizer : spec.groups[group - 1].optimizer;
}

size_t GroupOf(const ProgramSpec& spec, absl::string_view variable) {
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    const std::vector<std::string>& names = spec.groups[group].variables;
    if (std::find(names.begin(), names.end(), variable) != names.end()) return group + 1;
  }
  return 0;
}

OptimizerStep StepOf(const Optimizer& optimizer, float gradient_scale) {
  OptimizerStep step;
  std::visit([&](const auto& options) { SetAttributes(options, gradient_scale, step); }, optimizer);
  return step;
}

const char* OptimizerName(const program::v1::Instruction& instruction) {
  using program::v1::Instruction;
  switch (instruction.attributes_case()) {
    case Instruction::kSgd:
      return "SGD";
    case Instruction::kAdam:
      return "Adam";
    case Instruction::kRmsProp:
      return "RMSprop";
    case Instruction::kLamb:
      return "LAMB";
    case Instruction::kLars:
      return "LARS";
    default:
      return "";
  }
}

const char* NameOf(const Optimizer& optimizer) {
  return OptimizerName(StepOf(optimizer, 1).instruction);
}

}  // namespace vpod::compiler
