// Output of gc-monitor (spec/gc-tools.md 2): tables, JSON and CSV from the attributes of IPUs. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/ipuof/telemetry.h"
#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::tools {

using ipuof::MonitoredPartition;

// The table of devices.
std::string DeviceTable(const MonitoredPartition& partition);

// The processes of this PID namespace, or the box that says there are none, and the IPUs that have
// ipuof::kProcessNamespace, which are used from elsewhere. `terminal_columns` 0: stdout is no
// terminal. `now` in seconds since 1970.
std::string ProcessTables(const MonitoredPartition& partition, size_t terminal_columns,
                          int64_t now);

std::string MonitorJson(const std::vector<MonitoredPartition>& partitions, int64_t now);
// Returns the output of -j on failure: no cards, and the reason.
std::string MonitorErrorJson(const std::string& what);
// One line an IPU, with cells where public samplers look for them.
std::string MonitorCsv(const std::vector<MonitoredPartition>& partitions, int64_t now,
                       bool headings);

}  // namespace vpod::tools
