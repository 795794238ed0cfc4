#include "client/compiler/optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::compiler {
namespace {

// Prefixes of the optimiser's state; the name of the variable follows.
constexpr char kVelocity[] = "Accl___", kFirstMoment[] = "Accl1___", kSecondMoment[] = "Accl2___",
               kLargestMoment[] = "AcclMax___";

// Finite, and 0 or more unless something else is said; the ranges are PyTorch's.
struct Parameter {
  const char* name;
  float value;
  bool below_one = false;
  bool any_sign = false;
  bool may_be_infinite = false;
  bool above_zero = false;
};

Parameter Rate(float value) { return {"the learning rate", value}; }
Parameter Decay(float value) { return {"the weight decay", value}; }
Parameter Epsilon(float value) { return {"epsilon", value}; }
Parameter Momentum(float value) { return {"the momentum", value}; }
Parameter Beta1(float value) { return {"beta1", value, /*below_one=*/true}; }
Parameter Beta2(float value) { return {"beta2", value, /*below_one=*/true}; }

std::vector<Parameter> ParametersOf(const SgdOptions& sgd) {
  // PyTorch dampens velocities, not plain gradients.
  const bool dampens = sgd.momentum != 0 || sgd.dampen_all || sgd.combined;
  std::vector<Parameter> parameters = {
      Rate(sgd.learning_rate),
      Decay(sgd.weight_decay),
      Momentum(sgd.momentum),
      {.name = "the dampening", .value = dampens ? sgd.dampening : 0, .any_sign = true}};
  if (sgd.combined) {
    parameters.push_back(
        {.name = "the velocity scaling", .value = sgd.velocity_scaling, .above_zero = true});
  }
  return parameters;
}
std::vector<Parameter> ParametersOf(const AdamOptions& adam) {
  return {Rate(adam.learning_rate), Decay(adam.weight_decay), Beta1(adam.beta1), Beta2(adam.beta2),
          Epsilon(adam.epsilon)};
}
std::vector<Parameter> ParametersOf(const RmsPropOptions& rms) {
  return {Rate(rms.learning_rate),
          Decay(rms.weight_decay),
          {"alpha", rms.alpha},
          Epsilon(rms.epsilon),
          Momentum(rms.momentum)};
}
std::vector<Parameter> ParametersOf(const LambOptions& lamb) {
  return {Rate(lamb.learning_rate),
          Decay(lamb.weight_decay),
          Beta1(lamb.beta1),
          Beta2(lamb.beta2),
          Epsilon(lamb.epsilon),
          {.name = "max_weight_norm", .value = lamb.max_weight_norm, .may_be_infinite = true}};
}
std::vector<Parameter> ParametersOf(const LarsOptions& lars) {
  return {Rate(lars.learning_rate),
          Decay(lars.weight_decay),
          Momentum(lars.momentum),
          {"trust", lars.trust},
          Epsilon(lars.epsilon)};
}

std::vector<Parameter> ParametersOf(const Optimizer& optimizer) {
  return std::visit([](const auto& options) { return ParametersOf(options); }, optimizer);
}

absl::Status Check(const Parameter& parameter) {
  const float value = parameter.value;
  if (parameter.may_be_infinite) {
    if (value >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(parameter.name, " is ", value, ", must be 0 or more"));
  }
  if (std::isfinite(value) && (value >= 0 || parameter.any_sign) &&
      (value < 1 || !parameter.below_one) && (value > 0 || !parameter.above_zero))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(parameter.name, " is ", value, ", must be ",
                                                 parameter.below_one    ? "0 or more and below 1"
                                                 : parameter.any_sign   ? "finite"
                                                 : parameter.above_zero ? "above 0 and finite"
                                                                        : "0 or more and finite"));
}

void SetAttributes(const SgdOptions& sgd, float gradient_scale, OptimizerStep& step) {
  program::v1::Sgd& op = *step.instruction.mutable_sgd();
  op.set_gradient_scale(gradient_scale);
  op.set_nesterov(sgd.nesterov);
  op.set_maximize(sgd.maximize);
  op.set_combined(sgd.combined);
  if (sgd.momentum != 0) step.state = {{kVelocity, sgd.float16_velocity && !sgd.combined}};
  step.counts_updates = !sgd.dampen_all || sgd.combined;
}
void SetAttributes(const AdamOptions& adam, float gradient_scale, OptimizerStep& step) {
  program::v1::Adam& op = *step.instruction.mutable_adam();
  op.set_gradient_scale(gradient_scale);
  op.set_decoupled_weight_decay(adam.decoupled_weight_decay);
  op.set_maximize(adam.maximize);
  step.state = {{kFirstMoment, adam.float16_first_moment},
                {kSecondMoment, adam.float16_second_moment}};
  if (adam.amsgrad) step.state.push_back({kLargestMoment, adam.float16_second_moment});
  step.counts_updates = adam.bias_correction;
}
void SetAttributes(const RmsPropOptions& rms, float gradient_scale, OptimizerStep& step) {
  program::v1::RmsProp& op = *step.instruction.mutable_rms_prop();
  op.set_gradient_scale(gradient_scale);
  op.set_centered(rms.centered);
  op.set_with_momentum(rms.momentum != 0);
  op.set_maximize(rms.maximize);
  op.set_tensorflow(rms.tensorflow);
  step.state = {{kSecondMoment, rms.float16_second_moment, rms.tensorflow ? 1.0f : 0.0f}};
  if (rms.centered) step.state.push_back({kFirstMoment, rms.float16_first_moment});
  if (rms.momentum != 0) step.state.push_back({kVelocity, rms.float16_first_moment});
}
void SetAttributes(const LambOptions& lamb, float gradient_scale, OptimizerStep& step) {
  program::v1::Lamb& op = *step.instruction.mutable_lamb();
  op.set_gradient_scale(gradient_scale);
  op.set_maximize(lamb.maximize);
  step.state = {{kFirstMoment, lamb.float16_first_moment},
                {kSecondMoment, lamb.float16_second_moment}};
  step.counts_updates = lamb.bias_correction;
}
void SetAttributes(const LarsOptions& lars, float gradient_scale, OptimizerStep& step) {
  program::v1::Lars& op = *step.instruction.mutable_lars();
  op.set_gradient_scale(gradient_scale);
  op.set_maximize(lars.maximize);
  step.state = {{kVelocity}};
}

}  // namespace

std::string HyperParametersName(uint32_t ipu, size_t group) {
  return absl::StrCat("optimizer/hyperParameters/ipu", ipu,
                      group == 0 ? "" : absl::StrCat("/group", group));
}
std::string OptimizerStepName(uint32_t ipu) { return absl::StrCat("optimizer/step/ipu", ipu); }

bool IsOptimizerState(absl::string_view name) {
  const auto prefixes = {kVelocity,      kFirstMoment,         kSecondMoment,
                         kLargestMoment, kLossScaleFactorName, "optimizer/"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return absl::StartsWith(name, prefix); });
}

std::vector<float> HyperParameters(const Optimizer& optimizer) {
  std::vector<float> values;
  for (const Parameter& parameter : ParametersOf(optimizer)) values.push_back(parameter.value);
  return values;
}

absl::Status CheckHyperParameters(const Optimizer& optimizer) {
  for (const Parameter& parameter : ParametersOf(optimizer)) VPOD_RETURN_IF_ERROR(Check(parameter));
  const auto* sgd = std::get_if<SgdOptions>(&optimizer);
  if (sgd != nullptr && sgd->nesterov && (sgd->momentum == 0 || sgd->dampening != 0)) {
    return absl::InvalidArgumentError(
        "Nesterov's momentum needs a momentum above 0 and a dampening of 0");
  }
  if (sgd != nullptr && sgd->nesterov && sgd->combined) {
    return absl::InvalidArgumentError(
        "Nesterov's momentum needs the separate form of SGD, not the combined one");
  }
  return absl::OkStatus();
}

absl::Status CheckLearningRate(float rate) { return Check(Rate(rate)); }

const Optimizer& OptimizerOf(const ProgramSpec& spec, size_t group) {
  return group == 0 ? spec.optimizer.value() : spec.groups[group - 1].optimizer;
}

size_t GroupOf(const ProgramSpec& spec, absl::string_view variable) {
  for (size_t group = 0; group < spec.groups.size(); ++group) {
    const std::vector<std::string>& names = spec.groups[group].variables;
    if (std::find(names.begin(), names.end(), variable) != names.end()) return group + 1;
  }
  return 0;
}

bool HasFloat16State(const ProgramSpec& spec, absl::string_view variable) {
  if (spec.float16_accumulators && spec.accumulation > 1) return true;
  const OptimizerStep step = StepOf(OptimizerOf(spec, GroupOf(spec, variable)), 1);
  return std::any_of(step.state.begin(), step.state.end(),
                     [](const OptimizerState& state) { return state.float16; });
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
    case Instruction::kLambMoments:
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
