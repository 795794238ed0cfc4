// Plans of products and convolutions.
#pragma once

#include "device/model/op_plans.h"
#include "device/model/partition.h"

namespace vpod::model {

// The plan of a product that is split like this.
TilePlan ProductPlan(const PlannedPartition& planned);

}  // namespace vpod::model
