// Output of gcipuinfo's health check (spec/gc-tools.md 9.3). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "client/ipuof/telemetry.h"

namespace vpod::gcinfo {

// Devices with errors ("device") and those whose agent does not answer ("connection"), by host, in
// the order of their ids, which go on from partition to partition. "{}" when there are none.
std::string HealthText(const std::vector<ipuof::MonitoredPartition>& partitions);

}  // namespace vpod::gcinfo
