// Output of gc-info (spec/gc-tools.md 3 and 4). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ipuof/telemetry.h"
#include "tools/gc-monitor/monitor.h"

namespace vpod::tools {

using ipuof::DeviceAttributes;

// "Graphcore device listing:" with the devices of the active partition; several partitions or GCDs
// list single IPUs only, ids go on.
std::string DeviceListing(const std::vector<MonitoredPartition>& partitions);
// The same as JSON.
std::string DeviceListingJson(const std::vector<MonitoredPartition>& partitions);

// "  key: value" lines.
std::string AttributeLines(const DeviceAttributes& attributes);

// And the facts that all tools' JSON has, under the names that they have everywhere
// (docs/scripting.md).
DeviceAttributes WithCommonNames(DeviceAttributes attributes);

// "Device Info:" with the attributes of a device.
absl::StatusOr<std::string> DeviceInfo(const MonitoredPartition& partition, uint32_t device_id);
// One JSON object of them.
absl::StatusOr<std::string> DeviceInfoJson(const MonitoredPartition& partition, uint32_t device_id);

}  // namespace vpod::tools
