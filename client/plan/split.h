// Where to split a network over the IPUs of a replica, so that the slowest stage is fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/plan/plan.h"

namespace vpod::plan {

// The costs of the parts with which a stage of a network may begin, in their order.
struct PartCosts {
  std::vector<std::string> parts;  // "layer1.0", "h.3"; half layers of BERT
  std::vector<uint64_t> cycles;    // of each part
  uint64_t before = 0, after = 0;  // of what comes before the first and after the last part
  bool last_is_first = false;      // what comes after the last part is on the first IPU
};

// Plans the network on one IPU. InvalidArgument: it has no parts.
absl::StatusOr<PartCosts> CostsOfParts(const PlanRequest& request);

// The parts with which the stages after the first begin, so that the most expensive of `stages`
// stages costs least; the first stage may have no part. Fewer than asked for if there are not
// enough parts.
std::vector<size_t> BalancedSplit(const PartCosts& costs, size_t stages);

// The same for stages with about as many parts each; the first one has none if it has what comes
// after the last part. Empty if there are not enough parts.
std::vector<size_t> EvenSplit(const PartCosts& costs, size_t stages);

// NetworkRequest::stages for these parts.
std::vector<std::string> StagesOf(const std::string& network, const PartCosts& costs,
                                  const std::vector<size_t>& beginnings);

}  // namespace vpod::plan
