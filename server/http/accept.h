// Content negotiation: what an Accept header says about the types a server has.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "server/http/metrics.h"

namespace vpod::http {

// How much a client wants `type` ("text/plain"), 0 (not at all) to 1; 1 without a header. The most
// specific range that matches decides. Never fails: what cannot be read matches nothing.
double Quality(absl::string_view accept, absl::string_view type);

// Format for a scrape: text 0.0.4 unless OpenMetrics is wanted more; nothing when neither will do.
std::optional<Format> ChooseFormat(absl::string_view accept);

}  // namespace vpod::http
