// The links of the active partition, from all processes that hold its IPUs.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/vipu/ipuof_config.h"
#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::tools {

// By machine, then port. Unavailable: a process does not answer.
absl::StatusOr<std::vector<telemetry::v1::LinkTelemetry>> LinksOf(
    const vipu::ActivePartition& partition);

}  // namespace vpod::tools
