// The sockets of a process, as the kernel lists them.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace vpod::testing {

struct Sockets {
  std::set<std::string> listening;  // "tcp 2112": protocol and port; UDP counts as listening
  std::set<std::string> connected;  // "41234 to 8080": ports of TCP connections
};

// Empty if the process does not exist. Works across network namespaces.
Sockets SocketsOf(pid_t pid);

}  // namespace vpod::testing
