// Output of gc-links (spec/gc-tools.md 6.1). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::tools {

// Whether all IPU-Links are up, with all lanes, as both of their ends see them.
bool AllTrained(const std::vector<telemetry::v1::LinkTelemetry>& links);

// Links of a partition are trained when it is created, so that there is a warning to that effect,
// and those that have failed since.
std::string LinksText(const std::vector<telemetry::v1::LinkTelemetry>& links);
std::string LinksJson(const std::vector<telemetry::v1::LinkTelemetry>& links);

}  // namespace vpod::tools
