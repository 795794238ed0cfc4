// Names and addresses of hosts, as somebody wrote them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vpod::base {

// Says why `host` is not a name or address, which no resolver would take; empty if it may be one.
std::string HostTrouble(absl::string_view host);

}  // namespace vpod::base
