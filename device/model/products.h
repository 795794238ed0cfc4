// The common part of plans of products and of convolutions.
#pragma once

#include "device/model/op_plans.h"
#include "device/model/partition.h"

namespace vpod::model {

// The options of an instruction for its plan: type of partial results, memory proportion.
void SetOptions(const program::v1::ProductPlan& options, PlannedConvolution& convolution);

// Where an operand lies: in place, or else as `otherwise` says.
PlannedConvolution::Place PlaceOf(const Instruction& instruction, const PlanContext& context,
                                  int operand, PlannedConvolution::Place otherwise);

// The plan of what is split like this.
TilePlan PlanOf(const PlannedPartition& planned);

}  // namespace vpod::model
