// Output of gc-inventory (spec/gc-tools.md 5): every device with its attributes. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/gc-info/info.h"

namespace vpod::tools {

// Attributes of all devices of a partition, single IPUs before groups.
absl::StatusOr<std::vector<DeviceAttributes>> Inventory(const MonitoredPartition& partition);

std::string InventoryText(const std::vector<DeviceAttributes>& devices);
// {"devices": [{...}, ...]}; each device also has "remote buffers", the older name of "remote
// buffers supported" that callers read.
std::string InventoryJson(const std::vector<DeviceAttributes>& devices);

}  // namespace vpod::tools
