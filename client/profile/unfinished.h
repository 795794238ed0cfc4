// Files that get their name when they are whole: under which name they are written.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vpod::profile {

// `path`, the name of this host, the number of this process and the session, of which a process may
// have several. Directories may be shared by hosts.
std::string UnfinishedName(const std::string& path, absl::string_view session);

// Removes what processes of this host left under such names when they were killed.
void RemoveLeftovers(const std::string& path);

}  // namespace vpod::profile
