// The kernel's count of the bytes that a socket has received. In a file of its own, because
// linux/tcp.h and netinet/tcp.h cannot be included together.
#pragma once

#include <cstdint>

namespace vpod::rpc {

// 0 if the descriptor is not a TCP connection.
uint64_t ReceivedBytes(int fd);

}  // namespace vpod::rpc
