#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kAccumulator{
    "optimizer_c1", "The accumulator is wide, and the gradient is floats of its shape."};
constexpr Constraint kWeights{"optimizer_c2", "The weights are floats."};
constexpr Constraint kGradient{"optimizer_c3", "The gradient is floats of the weights' shape."};
constexpr Constraint kSgdVector{"optimizer_c4",
                                "The hyper-parameters are float32 [4], or [5] with `combined`."};
constexpr Constraint kFiveParameters{"optimizer_c5", "The hyper-parameters are float32 [5]."};
constexpr Constraint kLossScale{"optimizer_c6", "The loss scale is a float32 scalar."};
constexpr Constraint kCount{"optimizer_c7",
                            "There are 4 inputs, or a step and a state behind them."};
constexpr Constraint kStep{"optimizer_c8", "The step, if there is one, is a float32 scalar."};
constexpr Constraint kState{"optimizer_c9",
                            "The state, if there is any, is floats of the weights' shape."};
constexpr Constraint kFloats{"optimizer_c10", "All inputs are floats."};
constexpr Constraint kScaleState{
    "optimizer_c11",
    "The loss scale is a float32 scalar, the count an int32 scalar, and `finite` a bool scalar."};
constexpr Constraint kGrowth{"optimizer_c12", "`growth` is above 1 and finite."};
constexpr Constraint kBackoff{"optimizer_c13", "`backoff` is above 0 and below 1."};
constexpr Constraint kInterval{"optimizer_c14", "`interval` is 1 or more."};
constexpr Constraint kRmsPropStates{
    "optimizer_c15",
    "There is one state, and one more for each of `centered` and `with_momentum` that is set."};
constexpr Constraint kSquares{"optimizer_c16", "The squares are float32 [2]."};
constexpr Constraint kLambVector{
    "optimizer_c17", "The hyper-parameters are float32 [6], or [5] without a largest norm."};
constexpr Constraint kCombined{
    "optimizer_c18",
    "With `combined` the velocity, if there is one, is float32, and `nesterov` is not set."};

absl::Status CheckAccumulate(const v1::Instruction& instruction, const Operands& tensors) {
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* accumulator, tensors.Any(instruction.inputs(0)));
  VPOD_ASSIGN_OR_RETURN(const TensorType gradient, tensors.Plain(instruction.inputs(1)));
  if (accumulator->wide_accumulator() && IsFloat(gradient.type) &&
      TypeOf(*accumulator).dims == gradient.dims)
    return absl::OkStatus();
  return Broken(kAccumulator, absl::StrCat("tensor ", instruction.inputs(0),
                                           " is not a wide accumulator for ", gradient.ToString()));
}

// Inputs: weights, gradient, hyper-parameters, loss scale and, with state, the step and the state.
// Returns the types of what is updated: weights and state.
absl::StatusOr<Types> UpdatedTypes(absl::string_view optimizer, const Constraint& vector,
                                   int64_t hyper_parameters, absl::Span<const TensorType> inputs) {
  const TensorType &weights = inputs[0], &gradient = inputs[1];
  if (!IsFloat(weights.type)) {
    return Broken(kWeights, absl::StrCat(optimizer, " does not update ", weights.ToString()));
  }
  const auto floats_like_weights = [&](const TensorType& type) -> TensorType {
    return {IsFloat(type.type) ? type.type : v1::FLOAT32, weights.dims};
  };
  VPOD_RETURN_IF_ERROR(CheckInput(kGradient, "gradient", gradient, floats_like_weights(gradient)));
  VPOD_RETURN_IF_ERROR(
      CheckInput(vector, "hyper-parameter vector", inputs[2], {v1::FLOAT32, {hyper_parameters}}));
  VPOD_RETURN_IF_ERROR(CheckInput(kLossScale, "loss scale", inputs[3], {v1::FLOAT32, {}}));
  Types updated = {weights};
  if (inputs.size() == 5) {
    return Broken(
        kCount, absl::StrCat(optimizer,
                             " takes 4 inputs, or a step and state behind them, not a step alone"));
  }
  if (inputs.size() > 5)
    VPOD_RETURN_IF_ERROR(CheckInput(kStep, "step", inputs[4], {v1::FLOAT32, {}}));
  for (size_t i = 5; i < inputs.size(); ++i) {
    VPOD_RETURN_IF_ERROR(CheckInput(kState, "state", inputs[i], floats_like_weights(inputs[i])));
    updated.push_back(inputs[i]);
  }
  return updated;
}

absl::StatusOr<Types> SgdTypes(const v1::Sgd& op, absl::Span<const TensorType> inputs) {
  if (op.combined() && op.nesterov())
    return Broken(kCombined, "SGD does not take both `combined` and `nesterov`");
  VPOD_ASSIGN_OR_RETURN(Types types,
                        UpdatedTypes("SGD", kSgdVector, op.combined() ? 5 : 4, inputs));
  if (op.combined() && types.size() > 1)
    VPOD_RETURN_IF_ERROR(CheckInput(kCombined, "velocity", types[1], {v1::FLOAT32, types[0].dims}));
  return types;
}

absl::StatusOr<Types> LambTypes(absl::Span<const TensorType> inputs) {
  const int64_t hyper_parameters = inputs[2].dims == Dims{5} ? 5 : 6;
  return UpdatedTypes("LAMB", kLambVector, hyper_parameters, inputs);
}

absl::Status CheckFloats(absl::string_view op, absl::Span<const TensorType> inputs) {
  for (const TensorType& input : inputs) {
    if (IsFloat(input.type)) continue;
    return Broken(kFloats,
                  absl::StrCat(op, " does not take ", input.ToString(), ", must be floats"));
  }
  return absl::OkStatus();
}

absl::Status CheckUpdateLossScale(const v1::UpdateLossScale& op) {
  if (!(op.growth() > 1 && std::isfinite(op.growth())))
    return Broken(kGrowth, absl::StrCat("growth is ", op.growth(), ", must be above 1"));
  if (!(op.backoff() > 0 && op.backoff() < 1)) {
    return Broken(kBackoff,
                  absl::StrCat("backoff is ", op.backoff(), ", must be above 0 and below 1"));
  }
  if (op.interval() < 1) return Broken(kInterval, "interval is 0, must be 1 or more");
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> OptimizerOps() {
  return {
      {.kind = v1::Instruction::kAccumulate,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .check = CheckAccumulate,
       .constraints = {kAccumulator},
       .form = Form::kLowered,
       .in_place = {{0, 0}}},
      {.kind = v1::Instruction::kSgd,
       .role = Role::kKernel,
       .inputs = {4, 6},
       .outputs = {1, 2},
       .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return SgdTypes(instruction.sgd(), inputs); },
       .constraints = {kWeights, kGradient, kSgdVector, kLossScale, kCount, kStep, kState,
                       kCombined},
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}},
       .rounds = true},
      {.kind = v1::Instruction::kAdam,
       .role = Role::kKernel,
       .inputs = {7, 8},
       .outputs = {3, 4},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return UpdatedTypes("Adam", kFiveParameters, 5, inputs); },
       .constraints = {kWeights, kGradient, kFiveParameters, kLossScale, kStep, kState},
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}, {2, 6}, {3, 7}},
       .rounds = true},
      {.kind = v1::Instruction::kRmsProp,
       .role = Role::kKernel,
       .inputs = {6, 8},
       .outputs = {2, 4},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         const v1::RmsProp& op = instruction.rms_prop();
         const size_t state = size_t{1} + op.centered() + op.with_momentum();
         if (inputs.size() != 5 + state) {
           return Broken(kRmsPropStates,
                         absl::StrCat("RMSprop with these attributes has ", state,
                                      " tensors of state, not ", inputs.size() - 5));
         }
         return UpdatedTypes("RMSprop", kFiveParameters, 5, inputs);
       },
       .constraints = {kRmsPropStates, kWeights, kGradient, kFiveParameters, kLossScale, kStep,
                       kState},
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}, {2, 6}, {3, 7}},
       .rounds = true},
      {.kind = v1::Instruction::kLamb,
       .role = Role::kKernel,
       .inputs = {7, 7},
       .outputs = {3, 3},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return LambTypes(inputs); },
       .constraints = {kWeights, kGradient, kLambVector, kLossScale, kStep, kState},
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}, {2, 6}},
       .rounds = true},
      {.kind = v1::Instruction::kLambMoments,
       .role = Role::kKernel,
       .inputs = {7, 7},
       .outputs = {3, 3},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_ASSIGN_OR_RETURN(Types types, LambTypes(inputs));
         types[0] = {v1::FLOAT32, {2}};
         return types;
       },
       .constraints = {kWeights, kGradient, kLambVector, kLossScale, kStep, kState},
       .form = Form::kLowered,
       .in_place = {{1, 5}, {2, 6}},
       .rounds = true},
      {.kind = v1::Instruction::kLambStep,
       .role = Role::kKernel,
       .inputs = {7, 7},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckInput(kSquares, "squares", inputs[1], {v1::FLOAT32, {2}}));
         std::vector<TensorType> like_lamb(inputs.begin(), inputs.end());
         like_lamb[1] = inputs[0];  // in the place of the gradient
         VPOD_ASSIGN_OR_RETURN(Types types, LambTypes(like_lamb));
         types.resize(1);
         return types;
       },
       .constraints = {kSquares, kWeights, kLambVector, kLossScale, kStep, kState},
       .form = Form::kLowered,
       .in_place = {{0, 0}},
       .rounds = true},
      {.kind = v1::Instruction::kLars,
       .role = Role::kKernel,
       .inputs = {6, 6},
       .outputs = {2, 2},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return UpdatedTypes("LARS", kFiveParameters, 5, inputs); },
       .constraints = {kWeights, kGradient, kFiveParameters, kLossScale, kStep, kState},
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 5}},
       .rounds = true},
      {.kind = v1::Instruction::kNorm,
       .role = Role::kKernel,
       .inputs = {1, kAnyNumber},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckFloats("norm", inputs));
         return Types{{v1::FLOAT32, {}}};
       },
       .constraints = {kFloats},
       .form = Form::kLowered,
       .flops_per_operation = 2},
      {.kind = v1::Instruction::kAllFinite,
       .role = Role::kKernel,
       .inputs = {1, kAnyNumber},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckFloats("all-finite", inputs));
         return Types{{v1::BOOL, {}}};
       },
       .constraints = {kFloats}},
      {.kind = v1::Instruction::kUpdateLossScale,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {2, 2},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         VPOD_RETURN_IF_ERROR(CheckInput(kScaleState, "loss scale", inputs[0], {v1::FLOAT32, {}}));
         VPOD_RETURN_IF_ERROR(CheckInput(kScaleState, "count", inputs[1], {v1::INT32, {}}));
         VPOD_RETURN_IF_ERROR(CheckInput(kScaleState, "condition", inputs[2], {v1::BOOL, {}}));
         VPOD_RETURN_IF_ERROR(CheckUpdateLossScale(instruction.update_loss_scale()));
         return Types{inputs[0], inputs[1]};
       },
       .constraints = {kScaleState, kGrowth, kBackoff, kInterval},
       .form = Form::kLowered,
       .in_place = {{0, 0}, {1, 1}}},
  };
}

}  // namespace vpod::program
