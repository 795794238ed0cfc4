// Which partitions a gc-* tool looks at, with the telemetry of their IPUs. Shared by gc-monitor and
// gc-info.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tools/gc-monitor/monitor.h"

namespace vpod::tools {

// The active partition; with `all`, the others that the controller shows follow. Without an active
// one, `all` gives those there are. NotFound: no partition; FailedPrecondition: the active one is
// not ACTIVE; Unavailable: controller or agent do not answer.
absl::StatusOr<std::vector<MonitoredPartition>> LookAtPartitions(bool all);

}  // namespace vpod::tools
