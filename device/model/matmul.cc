#include <algorithm>
#include <utility>

#include "device/arch/hardware.h"
#include "device/model/products.h"

namespace vpod::model {

TilePlan ProductPlan(const PlannedPartition& planned) {
  return {.steps = StepsOf(planned.cost, planned.partition),
          .result_tiles = static_cast<uint32_t>(planned.partition.tiles()),
          .partial_bytes = planned.cost.partial_bytes};
}

namespace {

// Where an operand lies: in place, or with the dimension that is added over innermost, or not.
PlannedConvolution::Place PlaceOf(const Instruction& instruction, const PlanContext& context,
                                  int operand, bool inner) {
  using Place = PlannedConvolution::Place;
  const uint32_t tensor = instruction.inputs(operand);
  if (context.LiesFor(instruction, tensor)) return Place::kInPlace;
  return inner ? Place::kElsewhere : Place::kInOtherOrder;
}

// A product is a convolution of images of one pixel, the rows of one operand, with the other as
// its weights, whichever way is faster.
TilePlan MatMulPlan(const Instruction& instruction, const PlanContext& context) {
  const program::v1::MatMul& op = instruction.mat_mul();
  const program::TensorType a = context.Type(instruction.inputs(0)),
                            output = context.Type(instruction.outputs(0));
  const auto m = static_cast<uint64_t>(output.dims[output.dims.size() - 2]),
             n = static_cast<uint64_t>(output.dims.back()),
             k = static_cast<uint64_t>(a.dims[a.dims.size() - (op.transpose_a() ? 2 : 1)]);
  PlannedConvolution plan{.groups = static_cast<uint64_t>(output.elements()) / (m * n),
                          .batch = m,
                          .inputs = std::max<uint64_t>(1, k),  // sums of nothing are written
                          .outputs = n,
                          .half = a.type == program::v1::FLOAT16,
                          .half_partials = op.plan().partials() == program::v1::FLOAT16,
                          .image = PlaceOf(instruction, context, 0, !op.transpose_a()),
                          .weights = PlaceOf(instruction, context, 1, op.transpose_b())};
  if (op.plan().memory_proportion() > 0) plan.memory_proportion = op.plan().memory_proportion();
  PlannedConvolution swapped = plan;
  std::swap(swapped.batch, swapped.outputs);
  std::swap(swapped.image, swapped.weights);
  const PlannedPartition &straight = context.PartitionOf(plan),
                         &other = context.PartitionOf(swapped);
  return ProductPlan(other.cost.total_cycles() < straight.cost.total_cycles() ? other : straight);
}

}  // namespace

std::vector<PlanDef> MatMulPlans() { return {{Instruction::kMatMul, MatMulPlan}}; }

}  // namespace vpod::model
