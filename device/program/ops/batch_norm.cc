#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/activations.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::program {
namespace {

constexpr Constraint kInside{"batch_norm_c1",
                             "With `add`, SILU or `recompute` a value inside the op is rounded to "
                             "nearest, and stochastic rounding is refused."};
constexpr Constraint kCount{
    "batch_norm_c2",
    "There is another input with `add` and, in the gradient, one with an activation."};
constexpr Constraint kX{"batch_norm_c3",
                        "x is floats [batch, channels, …] with one channel or more."};
constexpr Constraint kEpsilon{"batch_norm_c4", "Epsilon is above 0."};
constexpr Constraint kMoments{"batch_norm_c5", "x has elements, of which the mean is taken."};
constexpr Constraint kGradient{"batch_norm_c6", "The gradient of y has the type of x."};
constexpr Constraint kChannels{
    "batch_norm_c7",
    "Scale, offset, mean and variance, as far as they are inputs, are float32 "
    "[channels]."};
constexpr Constraint kFused{
    "batch_norm_c8",
    "The inputs that `add` and, without `recompute`, an activation bring have the type of x: an "
    "addend, a second gradient, the activation's output."};
constexpr Constraint kActivation{
    "batch_norm_c9",
    "An activation is RELU, RELU6 or SILU; in the gradient SILU needs `recompute`, which needs an "
    "activation."};

// The type of what there is one of for each channel.
absl::StatusOr<TensorType> ChannelType(const TensorType& x, float epsilon) {
  if (x.rank() < 2 || !IsFloat(x.type))
    return Broken(kX, absl::StrCat("x is ", x.ToString(), ", must be floats [batch, channels, …]"));
  if (x.dims[1] == 0)
    return Broken(kX, absl::StrCat("x is ", x.ToString(), " and has no channels"));
  if (!(epsilon > 0))
    return Broken(kEpsilon, absl::StrCat("epsilon is ", epsilon, ", must be above 0"));
  return TensorType{v1::FLOAT32, {x.dims[1]}};
}

absl::Status CheckHasMoments(const TensorType& x) {
  if (!x.empty()) return absl::OkStatus();
  return Broken(kMoments, absl::StrCat("x is ", x.ToString(),
                                       " and has no elements, of which the mean is taken"));
}

absl::Status CheckCount(absl::Span<const TensorType> inputs, size_t expected) {
  if (inputs.size() == expected) return absl::OkStatus();
  return Broken(kCount, absl::StrCat("with these attributes there are ", expected, " inputs, not ",
                                     inputs.size()));
}

absl::Status CheckActivation(v1::UnaryOperator op) {
  if (op == v1::UNARY_OPERATOR_UNSPECIFIED || IsActivation(op)) return absl::OkStatus();
  return Broken(kActivation,
                absl::StrCat("the activation is ",
                             v1::UnaryOperator_IsValid(op) ? v1::UnaryOperator_Name(op)
                                                           : absl::StrCat(static_cast<int>(op)),
                             ", must be RELU, RELU6 or SILU"));
}

// `op`: any of the three.
template <class Op>
absl::Status CheckInside(const v1::Instruction& instruction, const Op& op) {
  bool rounds_inside = op.add() || op.activation() == v1::SILU;
  if constexpr (requires { op.recompute(); }) rounds_inside = rounds_inside || op.recompute();
  if (!rounds_inside || !instruction.has_rounding()) return absl::OkStatus();
  return Broken(kInside, "with `add`, SILU or `recompute` there is no stochastic rounding");
}

// Whether it adds an image or has an activation.
template <auto Attributes>
bool Fused(const v1::Instruction& instruction) {
  const auto& op = (instruction.*Attributes)();
  return op.add() || op.activation() != v1::UNARY_OPERATOR_UNSPECIFIED;
}

absl::StatusOr<Types> NormalizedTypes(const v1::Instruction& instruction,
                                      absl::Span<const TensorType> inputs) {
  const v1::BatchNorm& op = instruction.batch_norm();
  VPOD_RETURN_IF_ERROR(CheckInside(instruction, op));
  VPOD_RETURN_IF_ERROR(CheckActivation(op.activation()));
  VPOD_RETURN_IF_ERROR(CheckCount(inputs, op.add() ? 4 : 3));
  VPOD_ASSIGN_OR_RETURN(const TensorType channels, ChannelType(inputs[0], op.epsilon()));
  VPOD_RETURN_IF_ERROR(CheckHasMoments(inputs[0]));
  VPOD_RETURN_IF_ERROR(CheckInput(kChannels, "scale", inputs[1], channels));
  VPOD_RETURN_IF_ERROR(CheckInput(kChannels, "offset", inputs[2], channels));
  if (op.add()) VPOD_RETURN_IF_ERROR(CheckInput(kFused, "addend", inputs[3], inputs[0]));
  return Types{inputs[0], channels, channels};
}

absl::StatusOr<Types> InferenceTypes(const v1::Instruction& instruction,
                                     absl::Span<const TensorType> inputs) {
  const v1::BatchNormInference& op = instruction.batch_norm_inference();
  VPOD_RETURN_IF_ERROR(CheckInside(instruction, op));
  VPOD_RETURN_IF_ERROR(CheckActivation(op.activation()));
  VPOD_RETURN_IF_ERROR(CheckCount(inputs, op.add() ? 6 : 5));
  VPOD_ASSIGN_OR_RETURN(const TensorType channels, ChannelType(inputs[0], op.epsilon()));
  const char* names[] = {"x", "scale", "offset", "mean", "variance"};
  for (size_t i = 1; i < 5; ++i)
    VPOD_RETURN_IF_ERROR(CheckInput(kChannels, names[i], inputs[i], channels));
  if (op.add()) VPOD_RETURN_IF_ERROR(CheckInput(kFused, "addend", inputs[5], inputs[0]));
  return Types{inputs[0]};
}

absl::StatusOr<Types> GradientTypes(const v1::Instruction& instruction,
                                    absl::Span<const TensorType> inputs) {
  const v1::BatchNormGradient& op = instruction.batch_norm_gradient();
  VPOD_RETURN_IF_ERROR(CheckInside(instruction, op));
  VPOD_RETURN_IF_ERROR(CheckActivation(op.activation()));
  const bool activation = op.activation() != v1::UNARY_OPERATOR_UNSPECIFIED;
  if (op.activation() == v1::SILU && !op.recompute())
    return Broken(kActivation, "the gradient of SILU needs `recompute`");
  if (op.recompute() && !activation) return Broken(kActivation, "`recompute` needs an activation");
  VPOD_RETURN_IF_ERROR(CheckCount(inputs, size_t{5} + op.add() + activation));
  VPOD_ASSIGN_OR_RETURN(const TensorType channels, ChannelType(inputs[0], op.epsilon()));
  VPOD_RETURN_IF_ERROR(CheckHasMoments(inputs[0]));
  VPOD_RETURN_IF_ERROR(CheckInput(kGradient, "gradient", inputs[1], inputs[0]));
  const char* names[] = {"scale", "mean", "variance"};
  for (size_t i = 0; i < 3; ++i)
    VPOD_RETURN_IF_ERROR(CheckInput(kChannels, names[i], inputs[i + 2], channels));
  if (op.add()) VPOD_RETURN_IF_ERROR(CheckInput(kFused, "second gradient", inputs[5], inputs[0]));
  if (op.recompute()) {
    VPOD_RETURN_IF_ERROR(CheckInput(kChannels, "offset", inputs.back(), channels));
  } else if (activation) {
    VPOD_RETURN_IF_ERROR(CheckInput(kFused, "activation", inputs.back(), inputs[0]));
  }
  Types types = {inputs[0], channels, channels};
  if (op.keep()) types.push_back(inputs[0]);
  return types;
}

}  // namespace

std::vector<OpDef> BatchNormOps() {
  return {
      {.kind = v1::Instruction::kBatchNorm,
       .role = Role::kKernel,
       .inputs = {3, 4},
       .outputs = {3, 3},
       .infer = NormalizedTypes,
       .constraints = {kInside, kActivation, kCount, kX, kEpsilon, kMoments, kChannels, kFused},
       .fused = Fused<&v1::Instruction::batch_norm>,
       .rounds = true,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kBatchNormInference,
       .role = Role::kKernel,
       .inputs = {5, 6},
       .outputs = {1, 1},
       .infer = InferenceTypes,
       .constraints = {kInside, kActivation, kCount, kX, kEpsilon, kChannels, kFused},
       .fused = Fused<&v1::Instruction::batch_norm_inference>,
       .updates = true,
       .rounds = true,
       .layout = ImagesLayout},
      {.kind = v1::Instruction::kBatchNormGradient,
       .role = Role::kKernel,
       .inputs = {5, 7},
       .outputs = {3, 4},
       .infer = GradientTypes,
       .constraints = {kInside, kActivation, kCount, kX, kEpsilon, kMoments, kGradient, kChannels,
                       kFused},
       .fused = Fused<&v1::Instruction::batch_norm_gradient>,
       .rounds = true,
       .layout = ImagesLayout},
  };
}

}  // namespace vpod::program
