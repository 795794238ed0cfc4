// Times things in turns, so that what else the machine does hits all of them.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vpod::benchmarks {

// Seconds of wall time that a call takes.
absl::StatusOr<double> Seconds(const std::function<absl::Status()>& call);

// The median time of each call over the rounds, of which every second one goes backwards. A round
// before them is not timed.
absl::StatusOr<std::vector<double>> MedianSecondsInTurns(
    int rounds, const std::vector<std::function<absl::Status()>>& calls);

}  // namespace vpod::benchmarks
