// Output of the commands of gc-info that need a device for themselves (spec/gc-tools.md 3.1 and
// 3.3). Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/gc-monitor/monitor.h"

namespace vpod::tools {

// FailedPrecondition naming the process that has one of the device's IPUs; OutOfRange: no such
// device. `now` in seconds since 1970.
absl::Status CheckIdle(const MonitoredPartition& partition, uint32_t device_id, int64_t now);

// The state map of a device's first IPU, which nobody uses: the tiles next to the exchange wait,
// all others idle; an error of the IPU, of which it is not known whose it was, has stopped them
// all.
absl::StatusOr<std::string> TileOverview(const MonitoredPartition& partition, uint32_t device_id);

// Links to other IPUs and to the gateway, of a device's first IPU, one "name: value" a line.
absl::StatusOr<std::string> LinkStatus(const MonitoredPartition& partition, uint32_t device_id);
absl::StatusOr<std::string> PciStatus(const MonitoredPartition& partition, uint32_t device_id);

// InvalidArgument unless the text names a tile, or "-" for all; and unless it names a context:
// "SU", "W0" to "W5" or its number 0 to 6, the supervisor's being 0.
absl::Status CheckTile(const std::string& text);
absl::Status CheckContext(const std::string& text);

}  // namespace vpod::tools
