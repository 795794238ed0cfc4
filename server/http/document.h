// The text of deploy/prometheus/METRICS.md, from the families themselves.
#pragma once

#include <string>

namespace vpod::http {

std::string MetricsDocument();

}  // namespace vpod::http
