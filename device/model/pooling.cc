#include "device/model/op_plans.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::model {
namespace {

// One vector operation for each element of each window of the pooled image.
TilePlan WindowsPlan(uint32_t pooled, const program::v1::SlidingWindow& window,
                     const PlanContext& context) {
  const double elements =
      static_cast<double>(context.Elements(pooled)) * program::KernelElements(window);
  return {{ElementwiseStep(static_cast<uint64_t>(elements), context.Type(pooled).type, 3)}};
}

}  // namespace

std::vector<PlanDef> PoolingPlans() {
  return {{Instruction::kMaxPool,
           [](const Instruction& instruction, const PlanContext& context) {
             return WindowsPlan(instruction.outputs(0), instruction.max_pool().window(), context);
           }},
          {Instruction::kMaxPoolGradient,
           [](const Instruction& instruction, const PlanContext& context) {
             return WindowsPlan(instruction.inputs(0), instruction.max_pool_gradient().window(),
                                context);
           }},
          {Instruction::kAveragePool,
           [](const Instruction& instruction, const PlanContext& context) {
             return WindowsPlan(instruction.outputs(0), instruction.average_pool().window(),
                                context);
           }},
          {Instruction::kAveragePoolGradient,
           [](const Instruction& instruction, const PlanContext& context) {
             return WindowsPlan(instruction.inputs(0), instruction.average_pool_gradient().window(),
                                context);
           }}};
}

}  // namespace vpod::model
