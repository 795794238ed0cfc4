// vpod plan: what training a model takes on PODs of any size.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/plan/plan.h"
#include "tools/vpod/plan_figures.h"

namespace vpod::tools {

// A plan for each POD of each type of machine, as a text that ends with a newline. The efficiency
// is the items per second of an IPU, compared with those on the smallest of the PODs of its type.
// `explain`: also the time of each IPU of a replica, and why a plan does not fit.
absl::StatusOr<std::string> PlanText(const plan::PlanRequest& request, const Systems& systems,
                                     PlanFormat format, bool explain);

// The fastest candidate that fits, with its neighbours (client/plan/search.h).
absl::StatusOr<std::string> SearchText(const plan::PlanRequest& request, uint64_t global_batch,
                                       PlanFormat format, bool explain);

}  // namespace vpod::tools
