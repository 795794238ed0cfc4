// Files that get their name when they are whole: under which name they are written.
#pragma once

#include <string>

namespace vpod::profile {

// `path`, the name of this host and the number of this process. Directories may be shared by hosts.
std::string UnfinishedName(const std::string& path);

// Removes what processes of this host left under such names when they were killed.
void RemoveLeftovers(const std::string& path);

}  // namespace vpod::profile
