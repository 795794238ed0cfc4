#include "device/model/products.h"

namespace vpod::model {

void SetOptions(const program::v1::ProductPlan& options, PlannedConvolution& convolution) {
  convolution.half_partials = options.partials() == program::v1::FLOAT16;
  if (options.memory_proportion() > 0) convolution.memory_proportion = options.memory_proportion();
}

PlannedConvolution::Place PlaceOf(const Instruction& instruction, const PlanContext& context,
                                  int operand, PlannedConvolution::Place otherwise) {
  return context.LiesFor(instruction, instruction.inputs(operand))
             ? PlannedConvolution::Place::kInPlace
             : otherwise;
}

TilePlan PlanOf(const PlannedPartition& planned) {
  return {.steps = StepsOf(planned.cost, planned.partition),
          .result_tiles = static_cast<uint32_t>(planned.partition.tiles()),
          .partial_bytes = planned.cost.partial_bytes};
}

}  // namespace vpod::model
