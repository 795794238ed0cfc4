// The kernel's view of a TCP connection. In a file of its own, because linux/tcp.h and
// netinet/tcp.h cannot be included together.
#pragma once

#include <cstdint>
#include <optional>

namespace vpod::rpc {

struct TcpInfo {
  uint64_t received_bytes = 0;
  bool closed = false;  // both ways, or reset
};

// Nothing if the descriptor is not a TCP socket.
std::optional<TcpInfo> TcpInfoOf(int fd);

}  // namespace vpod::rpc
