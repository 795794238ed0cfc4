#include "server/rpc/received_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace vpod::rpc {

uint64_t ReceivedBytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  return size < kNeeded ? 0 : info.tcpi_bytes_received;
}

}  // namespace vpod::rpc
