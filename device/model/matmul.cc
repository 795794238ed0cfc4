#include <algorithm>
#include <utility>

#include "device/model/products.h"

namespace vpod::model {
namespace {

// A product is a convolution of images of one pixel, the rows of one operand, with the other as
// its weights, whichever way is faster. Operands are read along the dimension that is added over.
TilePlan MatMulPlan(const Instruction& instruction, const PlanContext& context) {
  using enum PlannedConvolution::Place;
  const program::v1::MatMul& op = instruction.mat_mul();
  const program::TensorType a = context.Type(instruction.inputs(0)),
                            output = context.Type(instruction.outputs(0));
  const auto m = static_cast<uint64_t>(output.dims[output.dims.size() - 2]),
             n = static_cast<uint64_t>(output.dims.back()),
             k = static_cast<uint64_t>(a.dims[a.dims.size() - (op.transpose_a() ? 2 : 1)]);
  PlannedConvolution plan{
      .groups = static_cast<uint64_t>(output.elements()) / (m * n),
      .batch = m,
      .inputs = std::max<uint64_t>(1, k),  // sums of nothing are written
      .outputs = n,
      .half = a.type == program::v1::FLOAT16,
      .image = PlaceOf(instruction, context, 0, op.transpose_a() ? kInOtherOrder : kElsewhere),
      .weights = PlaceOf(instruction, context, 1, op.transpose_b() ? kElsewhere : kInOtherOrder)};
  SetOptions(op.plan(), plan);
  PlannedConvolution swapped = plan;
  std::swap(swapped.batch, swapped.outputs);
  std::swap(swapped.image, swapped.weights);
  const PlannedPartition &straight = context.PartitionOf(plan),
                         &other = context.PartitionOf(swapped);
  return PlanOf(other.cost.total_cycles() < straight.cost.total_cycles() ? other : straight);
}

}  // namespace

std::vector<PlanDef> MatMulPlans() { return {{Instruction::kMatMul, MatMulPlan}}; }

}  // namespace vpod::model
