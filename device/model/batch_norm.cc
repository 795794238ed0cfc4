#include <algorithm>

#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/norm.h"
#include "device/program/activations.h"

namespace vpod::model {

void AddSums(TilePlan& plan, const program::TensorType& x, uint64_t outputs, bool inner) {
  const auto elements = static_cast<uint64_t>(x.elements());
  plan.Add(ReduceSteps({.inputs = elements,
                        .outputs = 2 * outputs,
                        .inner = inner,
                        .cycles_per_vector = kMomentCycles},
                       x.type));
  const uint64_t on_a_tile = CeilDiv(elements, arch::kTilesPerIpu);
  const uint64_t needed =
      inner ? CeilDiv(outputs, arch::kTilesPerIpu) : std::min(outputs, on_a_tile);
  plan.Add(TileExchangeStep(2 * needed * sizeof(float)));
}

namespace {

// The work that a norm takes over is done by vertices of its own on hardware: an addition of its
// last operand, and an activation.
template <class Op>
void AddFused(TilePlan& plan, const Op& op, const Instruction& instruction,
              const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  if (op.add()) {
    if (!context.LieAlike(x, instruction.inputs(instruction.inputs_size() - 1)))
      plan.Add(TileExchangeStep(CeilDiv(context.Type(x).bytes(), arch::kTilesPerIpu)));
    plan.Add(ElementwiseStep(context, x, BinaryCycles(program::v1::ADD, context.Type(x).type)));
  }
  if (op.activation() != program::v1::UNARY_OPERATOR_UNSPECIFIED)
    plan.Add(ElementwiseStep(context, x, UnaryCycles(op.activation(), context.Type(x).type)));
}

TilePlan ForwardPlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  TilePlan plan;
  AddSums(plan, context.Type(x), context.Elements(instruction.outputs(1)), /*inner=*/false);
  plan.Add(ElementwiseStep(context, x, kNormCycles));
  AddFused(plan, instruction.batch_norm(), instruction, context);
  return plan;
}

TilePlan InferencePlan(const Instruction& instruction, const PlanContext& context) {
  const uint32_t x = instruction.inputs(0);
  TilePlan plan = ElementwisePlan(context, x, kNormCycles);
  AddFused(plan, instruction.batch_norm_inference(), instruction, context);
  return plan;
}

// The gradient is brought to where x lies.
TilePlan GradientPlan(const Instruction& instruction, const PlanContext& context) {
  const program::v1::BatchNormGradient& op = instruction.batch_norm_gradient();
  const uint32_t x = instruction.inputs(0);
  const program::TensorType type = context.Type(x);
  TilePlan plan;
  if (!context.LieAlike(x, instruction.inputs(1)))
    plan.Add(TileExchangeStep(CeilDiv(type.bytes(), arch::kTilesPerIpu)));
  if (op.add()) {
    constexpr int kSecondGradient = 5;
    if (!context.LieAlike(instruction.inputs(1), instruction.inputs(kSecondGradient)))
      plan.Add(TileExchangeStep(CeilDiv(type.bytes(), arch::kTilesPerIpu)));
    plan.Add(ElementwiseStep(context, x, BinaryCycles(program::v1::ADD, type.type)));
  }
  if (program::IsActivation(op.activation()))
    plan.Add(
        ElementwiseStep(context, x, BinaryCycles(program::GradientOf(op.activation()), type.type)));
  AddSums(plan, type, context.Elements(instruction.outputs(1)), /*inner=*/false);
  plan.Add(ElementwiseStep(context, x, kNormGradientCycles));
  return plan;
}

}  // namespace

std::vector<PlanDef> BatchNormPlans() {
  return {{Instruction::kBatchNorm, ForwardPlan, ResultsLie::kLikeOperand},
          {Instruction::kBatchNormInference, InferencePlan, ResultsLie::kLikeOperand},
          {Instruction::kBatchNormGradient, GradientPlan, ResultsLie::kLikeOperand}};
}

}  // namespace vpod::model
