#include "device/arch/hardware.h"
#include "device/arch/vertex_cycles.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"
#include "device/model/reduction.h"

namespace vpod::model {

namespace {

// Each tile reduces its part; one number comes of them, which all tiles get.
void AddNorm(TilePlan& plan, const PlanContext& context, uint32_t tensor) {
  plan.Add(ReduceSteps({.inputs = context.Elements(tensor), .outputs = 1}, program::v1::FLOAT32));
  plan.Add(TileExchangeStep(sizeof(float)));
}

// Cycles of a square root and a division of float32 (spec/hardware.md 7.4).
constexpr double kRootAndQuotient = 10 + 10;

// Passes of arithmetic and other cycles of an update.
double Passes(int passes, double others = 0) { return passes * arch::kPassCycles + others; }

// An update of input 0, element by element. It has the type of its widest operand: weights of
// float16 may have gradients and state of float32.
PlanStep UpdateStep(const Instruction& instruction, const PlanContext& context, double cycles) {
  const uint32_t updated = instruction.inputs(0);
  program::v1::DataType widest = context.Type(updated).type;
  for (uint32_t input : instruction.inputs()) {
    const program::TensorType type = context.Type(input);
    if (type.elements() == context.Type(updated).elements() &&
        program::SizeOf(type.type) > program::SizeOf(widest))
      widest = type.type;
  }
  return ElementwiseStep(context.Elements(updated), widest, cycles, context.SpanOf(updated).tiles);
}

TilePlan UpdatePlan(const Instruction& instruction, const PlanContext& context, double cycles) {
  return {{UpdateStep(instruction, context, cycles)}};
}

}  // namespace

// Cycles for one 64-bit vector.
std::vector<PlanDef> OptimizerPlans() {
  return {{Instruction::kAccumulate,
           [](const Instruction& instruction, const PlanContext& context) {
             // Gradients lie where products leave them, accumulators as the weights do.
             TilePlan plan;
             const program::TensorType gradient = context.Type(instruction.inputs(1));
             plan.Add(TileExchangeStep(CeilDiv(gradient.bytes(), arch::kTilesPerIpu)));
             plan.Add(UpdateStep(instruction, context, Passes(1)));
             return plan;
           },
           ResultsLie::kInPlace},
          {Instruction::kSgd,
           [](const Instruction& instruction, const PlanContext& context) {
             return UpdatePlan(instruction, context,
                               Passes(instruction.outputs_size() > 1 ? 3 : 1));
           },
           ResultsLie::kInPlace, /*optimizer=*/true},
          {Instruction::kAdam,
           [](const Instruction& instruction, const PlanContext& context) {
             return UpdatePlan(instruction, context, Passes(4, kRootAndQuotient));
           },
           ResultsLie::kInPlace, /*optimizer=*/true},
          {Instruction::kRmsProp,
           [](const Instruction& instruction, const PlanContext& context) {
             // One pass for each other state.
             const int more = instruction.outputs_size() - 2;
             return UpdatePlan(instruction, context, Passes(3 + more, kRootAndQuotient));
           },
           ResultsLie::kInPlace, /*optimizer=*/true},
          {Instruction::kLamb,
           [](const Instruction& instruction, const PlanContext& context) {
             // Moments and step as Adam's, two norms, then one pass more.
             TilePlan plan = UpdatePlan(instruction, context, Passes(6, kRootAndQuotient));
             for (int i = 0; i < 2; ++i) AddNorm(plan, context, instruction.inputs(0));
             plan.Add(UpdateStep(instruction, context, Passes(1)));
             return plan;
           },
           ResultsLie::kInPlace, /*optimizer=*/true},
          {Instruction::kLambMoments,
           [](const Instruction& instruction, const PlanContext& context) {
             TilePlan plan = UpdatePlan(instruction, context, Passes(6, kRootAndQuotient));
             for (int i = 0; i < 2; ++i) AddNorm(plan, context, instruction.inputs(0));
             return plan;
           },
           ResultsLie::kInPlace, /*optimizer=*/true},
          {Instruction::kLambStep,
           [](const Instruction& instruction, const PlanContext& context) {
             return UpdatePlan(instruction, context, Passes(1));
           },
           ResultsLie::kInPlace},
          {Instruction::kLars,
           [](const Instruction& instruction, const PlanContext& context) {
             // Two norms, then the update.
             TilePlan plan = UpdatePlan(instruction, context, Passes(2));
             for (int i = 0; i < 2; ++i) AddNorm(plan, context, instruction.inputs(0));
             plan.Add(UpdateStep(instruction, context, Passes(3)));
             return plan;
           },
           ResultsLie::kInPlace, /*optimizer=*/true},
          {Instruction::kNorm,
           [](const Instruction& instruction, const PlanContext& context) {
             TilePlan plan;
             for (uint32_t input : instruction.inputs()) {
               plan.Add(ElementwiseStep(context, input, Passes(1)));
               AddNorm(plan, context, input);
             }
             return plan;
           }},
          {Instruction::kAllFinite,
           [](const Instruction& instruction, const PlanContext& context) {
             TilePlan plan;
             for (uint32_t input : instruction.inputs()) {
               plan.Add(ElementwiseStep(context, input, Passes(1)));
               plan.Add(ReduceSteps({.inputs = context.Elements(input), .outputs = 1},
                                    context.Type(input).type));
             }
             return plan;
           }},
          {Instruction::kUpdateLossScale,
           [](const Instruction& instruction, const PlanContext& context) {
             return ElementwisePlan(context, instruction.inputs(0), Passes(3));
           }}};
}

}  // namespace vpod::model
