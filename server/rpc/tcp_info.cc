#include "server/rpc/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace vpod::rpc {

std::optional<TcpInfo> TcpInfoOf(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  if (size < kNeeded) return std::nullopt;
  constexpr uint8_t kClosed = 7;  // TCP_CLOSE of netinet/tcp.h
  return TcpInfo{info.tcpi_bytes_received, info.tcpi_state == kClosed};
}

}  // namespace vpod::rpc
