#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kX{"layer_norm_c1", "x is floats with a last dimension above 0."};
constexpr Constraint kCount{"layer_norm_c2",
                            "There are a scale and an offset, or neither of them."};
constexpr Constraint kGradient{"layer_norm_c3", "The output gradient has the type of x."};
constexpr Constraint kMoments{
    "layer_norm_c4",
    "Mean and inverse deviation are float32 with the dimensions of x but for the last."};
constexpr Constraint kVectors{
    "layer_norm_c5",
    "Scale and offset, as far as they are inputs, are vectors with the element type and the last "
    "dimension of x."};
constexpr Constraint kEpsilon{"layer_norm_c6", "Epsilon is 0 or more and finite."};

// The type of the moments of rows.
absl::StatusOr<TensorType> MomentsType(const TensorType& x) {
  VPOD_RETURN_IF_ERROR(Check(x));
  if (x.rank() >= 1 && IsFloat(x.type) && x.dims.back() > 0)
    return TensorType{v1::FLOAT32, Dims(x.dims.begin(), x.dims.end() - 1)};
  return Broken(kX, absl::StrCat("layer norm does not take ", x.ToString(),
                                 ", must be floats with a last dimension above 0"));
}

absl::Status CheckVector(const char* name, const TensorType& vector, const TensorType& x) {
  return CheckInput(kVectors, name, vector, {x.type, {x.dims.back()}});
}

absl::StatusOr<Types> NormalizedTypes(const v1::Instruction& instruction,
                                      absl::Span<const TensorType> inputs) {
  VPOD_ASSIGN_OR_RETURN(const TensorType moments, MomentsType(inputs[0]));
  if (inputs.size() == 2) {
    return Broken(kCount, "layer norm takes a scale and an offset, or neither of them");
  }
  if (inputs.size() == 3) {
    VPOD_RETURN_IF_ERROR(CheckVector("scale", inputs[1], inputs[0]));
    VPOD_RETURN_IF_ERROR(CheckVector("offset", inputs[2], inputs[0]));
  }
  const float epsilon = instruction.layer_norm().epsilon();
  if (!(epsilon >= 0 && std::isfinite(epsilon))) {
    return Broken(kEpsilon, absl::StrCat("epsilon is ", epsilon, ", must be 0 or more and finite"));
  }
  return Types{inputs[0], moments, moments};
}

absl::StatusOr<Types> GradientTypes(const v1::Instruction&, absl::Span<const TensorType> inputs) {
  const TensorType& x = inputs[0];
  VPOD_ASSIGN_OR_RETURN(const TensorType moments, MomentsType(x));
  VPOD_RETURN_IF_ERROR(CheckInput(kGradient, "output gradient", inputs[1], x));
  VPOD_RETURN_IF_ERROR(CheckInput(kMoments, "mean", inputs[2], moments));
  VPOD_RETURN_IF_ERROR(CheckInput(kMoments, "inverse deviation", inputs[3], moments));
  if (inputs.size() == 5) VPOD_RETURN_IF_ERROR(CheckVector("scale", inputs[4], x));
  return Types{x};
}

}  // namespace

std::vector<OpDef> LayerNormOps() {
  return {
      {.kind = v1::Instruction::kLayerNorm,
       .role = Role::kKernel,
       .inputs = {1, 3},
       .outputs = {3, 3},
       .infer = NormalizedTypes,
       .constraints = {kX, kCount, kVectors, kEpsilon},
       .flops_per_operation = 6,
       .rounds = true},
      {.kind = v1::Instruction::kLayerNormGradient,
       .role = Role::kKernel,
       .inputs = {4, 5},
       .outputs = {1, 1},
       .infer = GradientTypes,
       .constraints = {kX, kGradient, kMoments, kVectors},
       .flops_per_operation = 8,
       .updates = true,
       .rounds = true},
  };
}

}  // namespace vpod::program
